//! Replaces declarations of shared memory, the one part of kernel source that C++ cannot take.
//!
//! `__shared__ V sums[BLOCK / 32];` becomes a reference to an object of that type in the emulator's
//! memory of the block, `extern __shared__ unsigned char raw[];` a pointer to the dynamic part.
//! Line numbers stay. Everything else is copied as it is.

/// Returns the rewritten source, or `line: reason` for a declaration that is not understood.
pub(crate) fn rewrite(source: &str) -> Result<String, String> {
    let mut scanner =
        Scanner { rest: source, out: String::new(), statement: 0, braces: Vec::new() };
    while !scanner.rest.is_empty() {
        if let Err(reason) = scanner.step() {
            let read = &source[..source.len() - scanner.rest.len()];
            return Err(format!("{}: {reason}", read.matches('\n').count() + 1));
        }
    }
    Ok(scanner.out)
}

struct Scanner<'a> {
    rest: &'a str,
    out: String,
    /// Where in `out` the statement that is being read begins.
    statement: usize,
    /// The open braces; true for those of functions and types, false for those of namespaces.
    braces: Vec<bool>,
}

impl Scanner<'_> {
    /// Copies one token, or rewrites one declaration.
    fn step(&mut self) -> Result<(), String> {
        let rest = self.rest;
        let first = rest.chars().next().unwrap_or('\0');
        if rest.starts_with("//") {
            self.copy_separate(rest.find('\n').unwrap_or(rest.len()));
        } else if let Some(comment) = rest.strip_prefix("/*") {
            self.copy_separate(comment.find("*/").map_or(rest.len(), |end| end + 4));
        } else if first == '#' && self.at_line_start() {
            let length = directive_length(rest);
            if rest[..length].contains("__shared__") {
                return Err("__shared__ inside a macro".to_owned());
            }
            self.copy_separate(length);
        } else if first == '"' || first == '\'' && !self.after_word() {
            self.copy(literal_length(rest, first));
        } else if first == '{' {
            let before = self.out[self.statement..].trim();
            let namespace = before.starts_with("namespace")
                || before.starts_with("inline namespace")
                || before == "extern \"C\"";
            self.braces.push(!namespace);
            self.copy_separate(1);
        } else if first == '}' {
            self.braces.pop();
            self.copy_separate(1);
        } else if first == ';' {
            self.copy_separate(1);
        } else if is_word(first) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            if &rest[..length] == "__shared__" {
                self.rest = &rest[length..];
                return self.declaration();
            }
            self.copy(length);
        } else {
            self.copy(first.len_utf8());
        }
        Ok(())
    }

    fn copy(&mut self, length: usize) {
        let (token, rest) = self.rest.split_at(length);
        self.out.push_str(token);
        self.rest = rest;
    }

    /// Copies a token after which a statement may begin.
    fn copy_separate(&mut self, length: usize) {
        self.copy(length);
        self.statement = self.out.len();
    }

    fn at_line_start(&self) -> bool {
        self.out.rsplit('\n').next().unwrap_or("").trim().is_empty()
    }

    /// Whether an apostrophe here separates digits: `1'000`.
    fn after_word(&self) -> bool {
        self.out.chars().next_back().is_some_and(is_word)
    }

    /// Rewrites from the start of the statement to its semicolon; `rest` is after `__shared__`.
    fn declaration(&mut self) -> Result<(), String> {
        if !self.braces.contains(&true) {
            return Err("__shared__ outside of a function: declare it in the kernel".to_owned());
        }
        let end = self.rest.find(';').ok_or("no ; after __shared__")?;
        let (after, rest) = self.rest.split_at(end);
        let before = self.out.split_off(self.statement);
        let indent: String = before.chars().take_while(|c| c.is_whitespace()).collect();
        let text = strip_comments(&format!("{before} {after}"));
        let declaration = Declaration::parse(&text)?;
        self.out.push_str(&indent);
        self.out.push_str(&declaration.rewritten()?);
        let lines = |s: &str| s.matches('\n').count();
        let kept = lines(&indent);
        self.out.push_str(&"\n".repeat(lines(&before) + lines(after) - kept));
        self.rest = &rest[1..];
        self.statement = self.out.len();
        Ok(())
    }
}

/// `type declarator, declarator…` without qualifiers.
struct Declaration {
    is_extern: bool,
    alignment: String,
    base: String,
    declarators: Vec<Declarator>,
}

/// `*name[4][8]`
struct Declarator {
    stars: String,
    name: String,
    dims: String,
}

impl Declaration {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(wrong) = text.chars().find(|c| matches!(c, '=' | '{' | '}' | '"')) {
            return Err(format!("unexpected {wrong} in a declaration of shared memory"));
        }
        let (mut is_extern, mut alignment, mut kept) = (false, "1".to_owned(), String::new());
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let length = match rest.find(|c| !is_word(c)) {
                Some(0) => rest.chars().next().map_or(1, char::len_utf8),
                Some(word) => word,
                None => rest.len(),
            };
            let (word, tail) = rest.split_at(length);
            rest = tail;
            match word {
                "extern" => is_extern = true,
                "static" => {}
                "__align__" | "alignas" => {
                    let open = tail.trim_start();
                    let inner = open.strip_prefix('(').ok_or(format!("no ( after {word}"))?;
                    let close = matching(inner, '(', ')').ok_or(format!("no ) after {word}"))?;
                    alignment = inner[..close].to_owned();
                    rest = &inner[close + 1..];
                }
                _ => kept.push_str(word),
            }
        }
        let mut pieces = split_commas(&kept).into_iter();
        let first = pieces.next().unwrap_or_default();
        let (head, name, dims) = split_declarator(&first)?;
        let base = head.trim_end_matches(|c: char| c == '*' || c.is_whitespace());
        let stars = head[base.len()..].trim().to_owned();
        if base.trim().is_empty() {
            return Err(format!("no type in the declaration of shared memory `{}`", text.trim()));
        }
        let mut declarators = vec![Declarator { stars, name, dims }];
        for piece in pieces {
            let (stars, name, dims) = split_declarator(&piece)?;
            declarators.push(Declarator { stars: stars.trim().to_owned(), name, dims });
        }
        Ok(Self { is_extern, alignment, base: base.trim().to_owned(), declarators })
    }

    fn rewritten(&self) -> Result<String, String> {
        let Self { is_extern, alignment, base, declarators } = self;
        let mut out = Vec::new();
        for Declarator { stars, name, dims } in declarators {
            let unsized_array = dims.chars().filter(|c| !c.is_whitespace()).eq("[]".chars());
            match (is_extern, unsized_array) {
                (true, true) => out.push(format!(
                    "{base}{stars}* const {name} = ::emu::dynamic_shared<{base}{stars}>();"
                )),
                (true, false) => {
                    return Err(format!("extern __shared__ {name} is not an array without size"));
                }
                (false, true) => {
                    return Err(format!("__shared__ {name} has no size and is not extern"));
                }
                (false, false) => out.push(format!(
                    "static char emu_tag_{name}; typedef {base} {stars}emu_type_{name}{dims}; \
                     emu_type_{name}& {name} = \
                     ::emu::static_shared<emu_type_{name}>(&emu_tag_{name}, {alignment});"
                )),
            }
        }
        Ok(out.join(" "))
    }
}

/// Splits `V sums[4]` into `V `, `sums` and `[4]`.
fn split_declarator(text: &str) -> Result<(String, String, String), String> {
    let text = text.trim();
    let mut head = text;
    while let Some(inner) = head.strip_suffix(']') {
        let reversed: String = inner.chars().rev().collect();
        let open = matching(&reversed, ']', '[')
            .ok_or(format!("unbalanced brackets in the declaration of shared memory `{text}`"))?;
        head = inner[..inner.len() - open - 1].trim_end();
    }
    let name: String = head.chars().rev().take_while(|&c| is_word(c)).collect();
    if name.is_empty() {
        return Err(format!("no name in the declaration of shared memory `{text}`"));
    }
    let before = &head[..head.len() - name.len()];
    Ok((before.to_owned(), name.chars().rev().collect(), text[head.len()..].to_owned()))
}

/// Splits at the commas that are not inside brackets.
fn split_commas(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut depth = 0usize;
    for c in text.chars() {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                pieces.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = pieces.last_mut() {
            last.push(c);
        }
    }
    pieces
}

/// Position of the bracket that closes one opened before `text`.
fn matching(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Length of a preprocessor line with its continuations, without the last line end.
fn directive_length(text: &str) -> usize {
    let mut length = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end_matches(['\n', '\r']);
        if !bare.ends_with('\\') {
            return length + bare.len();
        }
        length += line.len();
    }
    length
}

fn literal_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote || c == '\n' {
            return at + 1;
        }
    }
    text.len()
}

fn strip_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        out.push_str(&rest[..at]);
        out.push(' ');
        let comment = &rest[at..];
        let length = if comment.starts_with("//") {
            comment.find('\n').unwrap_or(comment.len())
        } else {
            comment.find("*/").map_or(comment.len(), |end| end + 2)
        };
        rest = &comment[length..];
    }
    out.push_str(rest);
    out
}
