//! Setters of option structs, one for each public field.

/// Adds to an option struct a method for each field, which takes the field's value and returns the
/// options: `SellPOptions::default().slice_size(16).threads_per_row(4)`.
#[doc(hidden)]
#[macro_export]
macro_rules! option_setters {
    ($options:ident { $($field:ident: $type:ty,)+ }) => {
        impl $options {$(
            #[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
            #[must_use]
            pub fn $field(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )+}
    };
}
