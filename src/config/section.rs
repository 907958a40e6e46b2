//! The `section!` macro: writes the struct of a section, its `Default` and its key table from one list, so that the three
//! cannot drift.

macro_rules! section {
    (
        $(#[$meta:meta])*
        $name:ident {
            $($(#[$field_meta:meta])* $field:ident: $type:ty = $default:expr, $kind:expr;)*
        }
        unused [$($unused:literal)*]
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[cfg_attr(test, derive(serde::Serialize))]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $name {
            pub(super) const SECTION: &'static Section = &Section {
                keys: &[$(Key { name: stringify!($field), kind: $kind },)*],
                unused: &[$($unused),*],
            };
        }
    };
}
