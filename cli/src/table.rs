//! Tables for people.

use comfy_table::{Cell, CellAlignment, Table, presets};

/// An empty table with a header and no rules.
pub(crate) fn plain(header: impl IntoIterator<Item = impl Into<Cell>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.into_iter().map(Into::into).collect::<Vec<Cell>>());
    table
}

/// Aligns these columns to the right.
pub(crate) fn right(mut table: Table, columns: &[usize]) -> Table {
    for at in columns {
        if let Some(column) = table.column_mut(*at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
