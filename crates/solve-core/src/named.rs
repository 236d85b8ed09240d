//! Choices that have names on the command line, in files and in other languages.

/// Gives an enum the list of its names, `name`, `Display` and `FromStr`.
macro_rules! named {
    ($t:ident, $what:literal, $($variant:ident => $name:literal),+) => {
        named!($t, $what, $(Self::$variant, Self::$variant => $name),+);
    };
    // Variants with data: their pattern, and the value that the name stands for.
    ($t:ident, $what:literal, $($pattern:pat, $value:expr => $name:literal),+) => {
        impl $t {
            /// Every choice, with its name.
            pub const NAMES: &[(&str, Self)] = &[$(($name, $value)),+];

            /// The name on the command line and in reports.
            pub fn name(self) -> &'static str {
                match self { $($pattern => $name),+ }
            }
        }

        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $t {
            type Err = ArgumentError;

            fn from_str(name: &str) -> Result<Self, ArgumentError> {
                Self::NAMES.iter().find(|(n, _)| *n == name).map(|(_, v)| *v).ok_or_else(|| {
                    ArgumentError::OutOfRange { name: $what, expected: concat!($($name, " "),+), found: name.to_owned() }
                })
            }
        }
    };
}

pub(crate) use named;
