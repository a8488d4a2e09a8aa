//! `Debug` for types with parts that do not implement it.

/// Implements `Debug` by some fields. `$it` is the value.
macro_rules! debug_by {
    ($type:ident, $it:ident $(, $field:ident: $value:expr)+) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                let mut shown = f.debug_struct(stringify!($type));
                $(shown.field(stringify!($field), &$value);)+
                shown.finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use debug_by;
