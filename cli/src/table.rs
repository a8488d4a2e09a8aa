//! Tables for people.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use crate::terminal;

/// An empty table with a header and no rules. On a terminal, long cells are wrapped to its width.
pub(crate) fn plain(header: impl IntoIterator<Item = impl Into<Cell>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    fit(&mut table);
    table.set_header(header.into_iter().map(Into::into).collect::<Vec<Cell>>());
    table
}

/// Wraps cells to the width of the terminal, if there is one.
pub(crate) fn fit(table: &mut Table) {
    if terminal::shows_results() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
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
