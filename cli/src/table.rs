//! Tables for people.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use crate::terminal;
use crate::text::line;

/// An empty table with a header and no rules. On a terminal, long cells are wrapped to its width.
pub fn plain(header: impl IntoIterator<Item = impl Into<Cell>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    fit(&mut table);
    table.set_header(header.into_iter().map(Into::into).collect::<Vec<Cell>>());
    table
}

/// The cells of a row, each in one line.
pub(crate) fn row(cells: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    cells.into_iter().map(|cell| line(cell.as_ref()).into_owned()).collect()
}

/// Wraps cells to the width of the terminal, if there is one.
pub(crate) fn fit(table: &mut Table) {
    if terminal::shows_results() {
        wrap(table);
    }
}

/// Wraps cells if the table is wider than its width, which is the terminal's unless it is set.
fn wrap(table: &mut Table) {
    table.set_content_arrangement(ContentArrangement::Dynamic);
}

/// Aligns these columns to the right.
pub fn right(mut table: Table, columns: &[usize]) -> Table {
    for at in columns {
        if let Some(column) = table.column_mut(*at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_wrapped_only_if_they_are_too_wide() {
        let table = |width| {
            let mut table = plain(["pod", "reason"]);
            table.add_row(["a", "node(s) had untolerated taint(s) and insufficient memory"]);
            wrap(&mut table);
            table.set_width(width);
            table.trim_fmt()
        };
        assert_eq!(table(200).lines().count(), 2);
        let narrow = table(30);
        assert!(narrow.lines().count() > 2, "{narrow}");
        assert!(narrow.lines().all(|line| line.chars().count() <= 30), "{narrow}");
    }
}
