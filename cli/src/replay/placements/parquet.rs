//! The rows as a Parquet file.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::{Cell, Row};

/// All columns are optional. Their names and order are those of the CSV file.
const SCHEMA: &str = "message placements {
    optional binary namespace (STRING);
    optional binary pod (STRING);
    optional binary uid (STRING);
    optional double arrived;
    optional double placed;
    optional binary node (STRING);
    optional double waited;
    optional double ended;
    optional double placed_last;
    optional binary why (STRING);
}";

/// The file's content: one row group, compressed with Snappy.
pub(super) fn bytes(rows: Vec<Row<'_>>) -> Result<Vec<u8>, ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    let mut columns = super::COLUMNS.map(|_| Vec::with_capacity(rows.len()));
    for row in rows {
        for (column, cell) in columns.iter_mut().zip(row.cells()) {
            column.push(cell);
        }
    }
    let mut group = writer.next_row_group()?;
    for column in columns {
        write(&mut group, column)?;
    }
    group.close()?;
    writer.into_inner()
}

/// Writes the next column. The definition level of an absent value is 0.
fn write(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    cells: Vec<Cell<'_>>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    let (mut texts, mut numbers, mut levels) = (Vec::new(), Vec::new(), Vec::new());
    for cell in cells {
        match cell {
            Cell::Text(text) => {
                levels.push(i16::from(text.is_some()));
                texts.extend(text.map(|text| ByteArray::from(text.into_owned().into_bytes())));
            }
            Cell::Seconds(seconds) => {
                levels.push(i16::from(seconds.is_some()));
                numbers.extend(seconds);
            }
        }
    }
    match column.untyped() {
        ColumnWriter::ByteArrayColumnWriter(column) => {
            column.write_batch(&texts, Some(&levels), None)?;
        }
        ColumnWriter::DoubleColumnWriter(column) => {
            column.write_batch(&numbers, Some(&levels), None)?;
        }
        _ => return Err(ParquetError::General("a column of another type".to_owned())),
    }
    column.close()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use portolan::model;

    use super::super::super::run::Fate;
    use super::*;

    fn read(rows: Vec<Row<'_>>) -> Vec<String> {
        let file = bytes::Bytes::from(super::bytes(rows).expect("a file"));
        let reader = SerializedFileReader::new(file).expect("a Parquet file");
        let rows = reader.get_row_iter(None).expect("rows");
        rows.map(|row| row.expect("a row").to_string()).collect()
    }

    #[test]
    fn absent_values_are_null() {
        let pods = [model::pod("a").build(), model::pod("b").build()];
        let placed = Fate { node: Some("n".into()), placed: Some(1.5), ..Fate::default() };
        let failed = Fate { why: "no \u{1f600} node".to_owned(), ..Fate::default() };
        let rows = vec![Row { pod: &pods[0], fate: &placed }, Row { pod: &pods[1], fate: &failed }];
        let found = read(rows);
        assert!(
            found[0].contains("pod: \"a\"") && found[0].contains("placed_last: 1.5"),
            "{found:?}"
        );
        assert!(found[0].contains("node: \"n\"") && found[0].contains("why: null"), "{found:?}");
        assert!(
            found[1].contains("node: null") && found[1].contains("no \u{1f600} node"),
            "{found:?}"
        );
        // A column without values, and a file without rows.
        assert!(read(vec![Row { pod: &pods[1], fate: &placed }])[0].contains("why: null"));
        assert_eq!(read(Vec::new()), Vec::<String>::new());
    }
}
