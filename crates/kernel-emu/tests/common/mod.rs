//! What the tests share.

/// Launches `$expression` on a line of blocks with the listed values as arguments.
macro_rules! run {
    ($expression:expr, $grid:expr, $block:expr, $shared:expr, $order:expr; $($value:expr),* $(,)?) => {
        kernel_emu::Args::new()
            $(.arg(&$value))*
            .launch($expression, [$grid, 1, 1], [$block, 1, 1], $shared, $order)
    };
}
pub(crate) use run;
