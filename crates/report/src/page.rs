//! Pages: sections of text, tables and figures, as one HTML file that needs no network.
//!
//! Text is written as HTML; tables and figures are embedded as data, drawn by `assets/page.js` when
//! they are scrolled into view.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::table::Table;

const ECHARTS: &str = include_str!("../assets/echarts/echarts.min.js");
const SCRIPT: &str = include_str!("../assets/page.js");
const STYLE: &str = include_str!("../assets/page.css");

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The title of the page.
    pub title: String,
    /// The subject of the page in one sentence.
    pub lead: String,
    /// The sections.
    pub sections: Vec<Section>,
}

/// A part of a page under a heading.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// The parts of the section.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A list of important sentences under a heading; an empty list is not shown.
    Notes(String, Vec<String>),
    /// Names and values.
    Facts(Vec<(String, String)>),
    /// A table.
    Table(TableBlock),
    /// A figure.
    Figure(Box<Figure>),
}

/// A table under a heading.
#[derive(Clone, Debug)]
pub struct TableBlock {
    /// The heading.
    pub title: String,
    /// The caption: what the table shows, with units.
    pub caption: String,
    /// The cells.
    pub table: Table,
}

/// A figure with the numbers behind it.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The heading.
    pub title: String,
    /// The caption: what the figure shows, with units, and how to read it.
    pub caption: String,
    /// The numbers, offered as CSV; points of charts may refer to rows of this table.
    pub table: Table,
    /// The charts, of which one is shown at a time, initially the first.
    pub charts: Vec<Chart>,
    /// The reason why there are no charts, if there are none.
    pub absent: String,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The name under which the reader selects the chart.
    pub name: String,
    /// The height of the chart in pixels, on a wide page.
    pub height: usize,
    /// The option object of Apache ECharts, without colours and tooltips, which the page adds. The
    /// `role` of a series sets its colour: `ours`, `ours-1`, `peer-0` and so on, `rest`, `roof`.
    /// Where `rows` is true, the last number of a point is its row in the figure's table.
    pub option: Value,
}

impl Page {
    /// The page as HTML.
    pub fn html(&self) -> String {
        let mut body = String::new();
        let mut data = Data::default();
        for (index, section) in self.sections.iter().enumerate() {
            let title = escape(&section.title);
            push(&mut body, format_args!("<section id=\"s{index}\">\n<h2>{title}</h2>\n"));
            for block in &section.blocks {
                data.block(&mut body, block);
            }
            body.push_str("</section>\n");
        }
        let links: String = (self.sections.iter().enumerate())
            .map(|(index, section)| {
                format!("<li><a href=\"#s{index}\">{}</a></li>\n", escape(&section.title))
            })
            .collect();
        let data = script(&json!({ "figures": data.figures, "tables": data.tables }));
        let (title, lead) = (escape(&self.title), escape(&self.lead));
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <a class=\"skip\" href=\"#main\">Skip to the figures</a>\n\
             <header>\n<h1>{title}</h1>\n<p class=\"lead\">{lead}</p>\n\
             <button type=\"button\" id=\"theme\">Dark</button>\n</header>\n\
             <nav aria-label=\"Sections\"><ul>\n{links}</ul></nav>\n\
             <main id=\"main\">\n<noscript><p class=\"notes\">Figures and tables need JavaScript; it \
             is in this file, nothing is loaded.</p></noscript>\n{body}</main>\n\
             <footer><p>Made by sparsebatch {version}. Charts by Apache ECharts, Apache Licence 2.0, \
             whose text and those of its parts are at the head of the script below.</p></footer>\n\
             <script type=\"application/json\" id=\"data\">{data}</script>\n\
             <script>{ECHARTS}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            version = env!("CARGO_PKG_VERSION"),
        )
    }
}

/// The data that the script draws.
#[derive(Default)]
struct Data {
    figures: Vec<Value>,
    tables: Vec<Value>,
}

impl Data {
    fn block(&mut self, body: &mut String, block: &Block) {
        match block {
            Block::Text(text) => push(body, format_args!("<p>{}</p>\n", escape(text))),
            Block::Notes(_, notes) if notes.is_empty() => {}
            Block::Notes(title, notes) => {
                let items: String =
                    notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
                let title = escape(title);
                push(
                    body,
                    format_args!(
                        "<div class=\"notes\">\n<h3>{title}</h3>\n<ul>\n{items}</ul>\n</div>\n"
                    ),
                );
            }
            Block::Facts(facts) => {
                let facts: String = facts
                    .iter()
                    .map(|(name, value)| {
                        format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(value))
                    })
                    .collect();
                push(body, format_args!("<dl class=\"facts\">\n{facts}</dl>\n"));
            }
            Block::Table(block) => self.table(body, block),
            Block::Figure(figure) => self.figure(body, figure),
        }
    }

    fn table(&mut self, body: &mut String, block: &TableBlock) {
        let index = self.tables.len();
        self.tables.push(json!({ "title": block.title, "table": block.table.to_json() }));
        push(
            body,
            format_args!(
                "<section class=\"block\" aria-labelledby=\"t{index}-title\">\n\
                 <h3 id=\"t{index}-title\">{}</h3>\n<p>{}</p>\n\
                 <div class=\"table\" data-table=\"{index}\"></div>\n</section>\n",
                escape(&block.title),
                escape(&block.caption)
            ),
        );
    }

    fn figure(&mut self, body: &mut String, figure: &Figure) {
        let (title, caption) = (escape(&figure.title), escape(&figure.caption));
        let index = self.figures.len();
        let head = format!("<h3 id=\"f{index}-title\">{title}</h3>\n<p>{caption}</p>\n");
        let Some(first) = figure.charts.first() else {
            let absent = escape(&figure.absent);
            let text = format_args!(
                "<section class=\"block\">\n<h3>{title}</h3>\n<p>{caption}</p>\n\
                 <p class=\"absent\">{absent}</p>\n</section>\n"
            );
            return push(body, text);
        };
        let charts: Vec<Value> = figure
            .charts
            .iter()
            .map(|chart| {
                json!({ "name": chart.name, "height": chart.height, "option": chart.option })
            })
            .collect();
        self.figures.push(json!({
            "title": figure.title, "charts": charts, "table": figure.table.to_json(),
        }));
        let height = first.height;
        push(
            body,
            format_args!(
                "<figure class=\"block\" data-figure=\"{index}\" \
                 aria-labelledby=\"f{index}-title\">\n<figcaption>\n{head}</figcaption>\n\
                 <div class=\"chart\" style=\"height:{height}px\"></div>\n</figure>\n"
            ),
        );
    }
}

/// Escapes text for an element or an attribute in double quotes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            character => escaped.push(character),
        }
    }
    escaped
}

/// JSON for a script element, escaped so that no text in it can end the element.
fn script(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('\u{2028}', "\\u2028")
}

fn push(text: &mut String, part: std::fmt::Arguments<'_>) {
    text.write_fmt(part).expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_an_element() {
        let evil = "</script><script>alert(1)</script>&\"'";
        let table = Table::new().texts(evil, [evil]);
        let chart = Chart { name: evil.into(), height: 300, option: json!({ "name": evil }) };
        let figure = |charts: Vec<Chart>| Figure {
            title: evil.into(),
            caption: evil.into(),
            table: table.clone(),
            charts,
            absent: evil.into(),
        };
        let page = |text: &str, figures: bool| Page {
            title: text.into(),
            lead: text.into(),
            sections: vec![Section {
                title: text.into(),
                blocks: vec![
                    Block::Text(text.into()),
                    Block::Notes(text.into(), vec![text.into()]),
                    Block::Facts(vec![(text.into(), text.into())]),
                    Block::Table(TableBlock {
                        title: text.into(),
                        caption: text.into(),
                        table: if figures { table.clone() } else { Table::new() },
                    }),
                    Block::Figure(Box::new(figure(vec![]))),
                    Block::Figure(Box::new(figure(vec![chart.clone()]))),
                ],
            }],
        };

        let html = page(evil, true).html();

        assert!(!html.contains("<script>alert"));
        let scripts = page("plain", true).html().matches("</script>").count();
        assert_eq!(html.matches("</script>").count(), scripts);
    }

    #[test]
    fn the_page_loads_nothing() {
        let html = Page { title: "t".into(), ..Page::default() }.html();

        for word in ["src=\"", "href=\"http", "@import", "url(http"] {
            assert!(!html.contains(word), "{word}");
        }
        assert!(html.contains("default-src 'none'"));
    }
}
