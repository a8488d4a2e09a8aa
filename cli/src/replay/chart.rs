//! `--chart`: utilization and waiting pods over time, as SVG or HTML.
//!
//! Colours are plain attributes. A style sheet in the file replaces them if the browser
//! prefers a dark scheme; in a viewer without style sheets the chart is dark on white. The
//! file embeds no fonts and loads no resources.

use std::fmt::Write;
use std::path::PathBuf;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::error::CommandError;
use crate::output;

use super::meter::{Sample, Usage};
use super::run::Outcome;
use super::workload::Workload;
use super::{Mode, report};

const WIDTH: u32 = 960;
const HEIGHT: u32 = 626;
const HEADER: u32 = 90;
const UPPER: u32 = 310;
/// More points than this are not visible.
const MOST_POINTS: usize = 720;
/// More lines than this cannot be told apart.
const MOST_RESOURCES: usize = 5;

const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
const FAINT: RGBColor = RGBColor(0x59, 0x63, 0x6e);
const GRID: RGBColor = RGBColor(0xd8, 0xde, 0xe4);
/// The palette of Okabe and Ito, distinguishable for colour-blind people.
const LINES: [RGBColor; 5] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
];
const WAITING: [RGBColor; 3] = [LINES[1], LINES[3], LINES[4]];

/// The replacement for each colour in a dark scheme.
const DARK: [(RGBColor, &str); 9] = [
    (PAPER, "#0d1117"),
    (INK, "#e6edf3"),
    (FAINT, "#9198a1"),
    (GRID, "#30363d"),
    (LINES[0], "#58a6ff"),
    (LINES[1], "#ff9e5e"),
    (LINES[2], "#3fc596"),
    (LINES[3], "#e3a3c8"),
    (LINES[4], "#f0c14b"),
];

/// The file format, chosen by the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Svg,
    Html,
}

/// The output file of a chart.
#[derive(Clone, Debug)]
pub(super) struct Target {
    path: PathBuf,
    form: Form,
}

impl Target {
    /// Parses the command-line argument.
    pub(super) fn parse(path: &str) -> Result<Target, String> {
        let path = PathBuf::from(path);
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        match ending.as_deref() {
            Some("svg") => Ok(Target { path, form: Form::Svg }),
            Some("html" | "htm") => Ok(Target { path, form: Form::Html }),
            _ => {
                Err("unsupported chart format: use a file name that ends in .svg or .html"
                    .to_owned())
            }
        }
    }

    /// Checks that the file can be written.
    pub(super) fn check(&self) -> Result<(), CommandError> {
        output::check(&self.path)
    }

    pub(super) fn write(
        &self,
        workload: &Workload,
        outcome: &Outcome,
        mode: Mode,
    ) -> Result<(), CommandError> {
        let svg = svg(&workload.name, outcome, mode)
            .map_err(|error| CommandError::Usage(format!("cannot draw the chart: {error}")))?;
        match self.form {
            Form::Svg => output::write(&self.path, &svg),
            Form::Html => output::write(&self.path, page(workload, outcome, &svg)),
        }
    }
}

/// The output file of a chart with the lines of several runs.
#[derive(Clone, Debug)]
pub(crate) struct Overlay(Target);

impl Overlay {
    /// Parses the command-line argument.
    pub(crate) fn parse(path: &str) -> Result<Overlay, String> {
        match Target::parse(path) {
            Ok(target) if target.form == Form::Svg => Ok(Overlay(target)),
            _ => Err("unsupported chart format: use a file name that ends in .svg".to_owned()),
        }
    }

    /// Checks that the file can be written.
    pub(crate) fn check(&self) -> Result<(), CommandError> {
        self.0.check()
    }

    /// Draws the used nodes and the waiting pods of named runs.
    pub(crate) fn write(
        &self,
        workload: &Workload,
        runs: &[(&str, &Outcome)],
        mode: Mode,
    ) -> Result<(), CommandError> {
        let lines = |axis: &Axis, value: Value| {
            let runs = runs.iter().zip(LINES.into_iter().cycle());
            let line = |((name, outcome), colour): (&(&str, &Outcome), RGBColor)| {
                let points = steps(&outcome.samples, axis, value);
                Line { name: (*name).to_owned(), colour, points }
            };
            runs.map(line).collect::<Vec<Line>>()
        };
        let ends = runs.iter().filter_map(|(_, outcome)| outcome.samples.last());
        let axis = Axis::of(mode, ends.map(|sample| sample.at).fold(1.0, f64::max), None);
        let used = lines(&axis, |sample| sample.used as f64);
        let waiting = lines(&axis, |sample| sample.waiting.unschedulable as f64);
        let names: Vec<&str> = runs.iter().map(|(name, _)| *name).collect();
        let header = [workload.name.clone(), names.join(", "), String::new()];
        let panels = [("used nodes", room(&used), used), ("waiting pods", room(&waiting), waiting)];
        let svg = panels_as_svg(&header, &axis, &panels)
            .map_err(|error| CommandError::Usage(format!("cannot draw the chart: {error}")))?;
        output::write(&self.0.path, &svg)
    }
}

/// The top of an axis, above the largest value.
fn room(lines: &[Line]) -> f64 {
    (lines.iter().map(Line::most).fold(0.0, f64::max) * 1.1).max(1.0)
}

type Drawn<T> = Result<T, Box<dyn std::error::Error>>;
/// The value of a sample that is drawn.
type Value = fn(&Sample) -> f64;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A line of the chart.
struct Line {
    name: String,
    colour: RGBColor,
    /// Steps: each value holds until the next point.
    points: Vec<(f64, f64)>,
}

impl Line {
    fn most(&self) -> f64 {
        self.points.iter().map(|(_, value)| *value).fold(0.0, f64::max)
    }
}

/// The horizontal axis.
struct Axis {
    name: String,
    /// The axis unit, in units of the samples.
    unit: f64,
    end: f64,
}

impl Axis {
    /// `duration` is that of the replay, which the chart may not show to its end.
    fn of(mode: Mode, end: f64, duration: Option<f64>) -> Axis {
        let (name, unit) = match mode {
            Mode::Fill => ("pods arrived", 1.0),
            Mode::Timed => match end {
                ..600.0 => ("seconds since the first arrival", 1.0),
                600.0..7_200.0 => ("minutes since the first arrival", 60.0),
                7_200.0..259_200.0 => ("hours since the first arrival", 3_600.0),
                _ => ("days since the first arrival", 86_400.0),
            },
        };
        let mut text = name.to_owned();
        if let Some(duration) = duration.filter(|duration| *duration > end) {
            let duration = number((duration / unit * 10.0).round() / 10.0);
            let _ =
                write!(text, " (cut: no pod arrives or waits; the last one ends at {duration})");
        }
        Axis { name: text, unit, end: (end / unit).max(f64::MIN_POSITIVE) }
    }
}

/// The samples reduced to visible points; each point has the largest of its values.
fn steps(samples: &[Sample], axis: &Axis, value: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let width = axis.end / MOST_POINTS as f64;
    let mut last = 0.0_f64;
    for sample in samples {
        let (at, value) = (sample.at / axis.unit, value(sample));
        let column = if samples.len() > MOST_POINTS { (at / width).floor() * width } else { at };
        match points.last_mut() {
            Some(point) if point.0 >= column => point.1 = point.1.max(value),
            // A column starts with the previous value.
            _ if samples.len() > MOST_POINTS => points.push((column, value.max(last))),
            _ => points.push((column, value)),
        }
        last = value;
    }
    let mut steps = Vec::with_capacity(points.len() * 2);
    for (at, value) in points {
        if let Some((_, before)) = steps.last().copied() {
            steps.push((at, before));
        }
        steps.push((at, value));
    }
    steps.push((axis.end, last));
    steps
}

/// The requested shares of the most requested resources; resources without requests are
/// left out.
fn shares(outcome: &Outcome, axis: &Axis) -> Vec<Line> {
    let share = |of: &Usage, requested: i64| requested as f64 * 100.0 / of.allocatable as f64;
    let mut drawn: Vec<(usize, &Usage)> = outcome
        .usage
        .iter()
        .enumerate()
        .filter(|(_, of)| of.resource != "pods" && of.peak > 0 && of.allocatable > 0)
        .collect();
    drawn.sort_by(|(_, a), (_, b)| share(b, b.peak).total_cmp(&share(a, a.peak)));
    drawn.truncate(MOST_RESOURCES);
    drawn.sort_by_key(|(at, _)| *at);
    let line = |((at, of), colour): ((usize, &Usage), RGBColor)| {
        let value = |sample: &Sample| share(of, sample.requested.get(at).copied().unwrap_or(0));
        let points = steps(&outcome.samples, axis, value);
        Line { name: of.resource.clone(), colour, points }
    };
    // Native resources come before extended resources, whose names contain a slash.
    let (own, extended): (Vec<_>, Vec<_>) =
        drawn.into_iter().partition(|(_, of)| !of.resource.contains('/'));
    own.into_iter().chain(extended).zip(LINES).map(line).collect()
}

/// The numbers of waiting pods; the first line is drawn even if no pod waits.
fn waiting(outcome: &Outcome, axis: &Axis) -> Vec<Line> {
    let values: [(&str, Value); 3] = [
        ("waiting for a node", |sample| sample.waiting.unschedulable as f64),
        ("gated", |sample| sample.waiting.gated as f64),
        ("waiting for a permit", |sample| sample.waiting.permit as f64),
    ];
    let line = |((name, value), colour): ((&str, Value), RGBColor)| Line {
        name: name.to_owned(),
        colour,
        points: steps(&outcome.samples, axis, value),
    };
    let lines = values.into_iter().zip(WAITING).map(line);
    lines.enumerate().filter(|(at, line)| *at == 0 || line.most() > 0.0).map(|(_, l)| l).collect()
}

fn svg(title: &str, outcome: &Outcome, mode: Mode) -> Drawn<String> {
    let end = outcome.samples.last().map_or(1.0, |sample| sample.at);
    let axis = Axis::of(mode, end, outcome.duration);
    let requested = shares(outcome, &axis);
    let most = requested.iter().map(Line::most).fold(0.0, f64::max);
    let top = if most > 50.0 { most.max(100.0) } else { (most * 1.1).max(1.0) };
    let waiting = waiting(outcome, &axis);
    let header = [title.to_owned(), outcome.run.clone(), report::summary(outcome)];
    let panels = [
        ("requested, % of allocatable", top, requested),
        ("waiting pods", room(&waiting), waiting),
    ];
    panels_as_svg(&header, &axis, &panels)
}

/// Draws a header of three lines and two panels, each with the name and the top of its axis.
fn panels_as_svg(
    header: &[String; 3],
    axis: &Axis,
    panels: &[(&str, f64, Vec<Line>); 2],
) -> Drawn<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&PAPER)?;
        let (top, rest) = root.split_vertically(HEADER);
        draw_header(&top, header)?;
        let (upper, lower) = rest.split_vertically(UPPER);
        for (area, (name, top, lines)) in [upper, lower].iter().zip(panels) {
            draw(area, axis, (name, *top), lines)?;
        }
        root.present()?;
    }
    Ok(with_style(&text))
}

fn draw_header(area: &Area<'_>, [title, run, summary]: &[String; 3]) -> Drawn<()> {
    let bold = ("sans-serif", 22).into_font().style(FontStyle::Bold).color(&INK);
    area.draw(&Text::new(title.clone(), (20, 14), bold))?;
    let plain = ("sans-serif", 16).into_font().color(&FAINT);
    area.draw(&Text::new(run.clone(), (20, 42), plain.clone()))?;
    area.draw(&Text::new(summary.clone(), (20, 66), plain))?;
    Ok(())
}

/// Draws one of the two panels: its lines, and a legend with the maximum of each.
fn draw(area: &Area<'_>, axis: &Axis, (name, top): (&str, f64), lines: &[Line]) -> Drawn<()> {
    let small = ("sans-serif", 15).into_font().color(&FAINT);
    let mut chart = ChartBuilder::on(area)
        .margin_left(14)
        .margin_right(28)
        .margin_top(30)
        .margin_bottom(4)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..axis.end, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .label_style(small.clone())
        .x_desc(&*axis.name)
        .y_desc(name)
        .axis_desc_style(small)
        .x_labels(10)
        // Fractions of pods get no label.
        .y_labels(6.min(top.ceil() as usize))
        .x_label_formatter(&|at| number(*at))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    for line in lines {
        let style = line.colour.stroke_width(2);
        chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
    }
    let mut x = 90;
    for line in lines {
        let most = line.most();
        let text = match name.contains('%') {
            true => format!("{}, max {most:.1} %", line.name),
            false => format!("{}, max {most:.0}", line.name),
        };
        area.draw(&Rectangle::new([(x, 11), (x + 18, 15)], line.colour.filled()))?;
        let style = ("sans-serif", 15).into_font().color(&INK);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        // Assume seven pixels per letter: the reader's fonts are unknown.
        let width = 24 + 7 * text.chars().count() as i32 + 16;
        area.draw(&Text::new(text, (x + 24, 13), style))?;
        x += width;
    }
    Ok(())
}

/// A number with at most two decimal places.
fn number(value: f64) -> String {
    match value {
        value if value.fract().abs() < 1e-9 => format!("{value:.0}"),
        value => format!("{value:.2}").trim_end_matches('0').to_owned(),
    }
}

/// Adds a style sheet, and lets the drawing scale to its container.
fn with_style(svg: &str) -> String {
    let mut style = String::from(
        "<style>\ntext { font-family: system-ui, -apple-system, \"Segoe UI\", sans-serif; }\n\
         @media (prefers-color-scheme: dark) {\n",
    );
    for (light, dark) in DARK {
        let RGBColor(r, g, b) = light;
        for attribute in ["fill", "stroke"] {
            // Writing to a string does not fail.
            let _ = writeln!(
                style,
                "  [{attribute}=\"#{r:02X}{g:02X}{b:02X}\"] {{ {attribute}: {dark}; }}"
            );
        }
    }
    style.push_str("}\n</style>\n");
    match svg.split_once(">\n") {
        Some((open, rest)) => format!("{open} role=\"img\">\n{style}{rest}"),
        None => svg.to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn html_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = String::from("<table>\n<tr>");
    for name in header {
        let _ = write!(text, "<th scope=\"col\">{}</th>", escaped(name));
    }
    text.push_str("</tr>\n");
    for row in rows {
        let cells = row.iter().map(|cell| format!("<td>{}</td>", escaped(cell)));
        let _ = writeln!(text, "<tr>{}</tr>", cells.collect::<String>());
    }
    text.push_str("</table>\n");
    text
}

/// A self-contained page: the chart, the figures and the notes.
fn page(workload: &Workload, outcome: &Outcome, svg: &str) -> String {
    let title = escaped(&workload.name);
    let mut rows = String::new();
    for (name, value) in report::rows(outcome) {
        let _ = writeln!(
            rows,
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
            escaped(name),
            escaped(&value)
        );
    }
    let (header, usage) = report::utilization(outcome);
    let usage = html_table(&header, &usage);
    let failed: Vec<Vec<String>> = report::reasons(outcome)
        .into_iter()
        .map(|(reason, pods)| vec![reason.to_owned(), pods.to_string()])
        .collect();
    let failed = match failed.is_empty() {
        true => String::new(),
        false => {
            format!("<h2>{}</h2>\n{}", report::REASONS, html_table(&["reason", "pods"], &failed))
        }
    };
    let run = escaped(&outcome.run);
    let notes = outcome.notes.iter().fold(String::new(), |mut text, note| {
        let _ = writeln!(text, "<p>{}</p>", escaped(note));
        text
    });
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>\n\
         :root {{ color-scheme: light dark; }}\n\
         body {{ margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: #ffffff; \
         color: #1f2328; font: 15px/1.5 system-ui, -apple-system, \"Segoe UI\", sans-serif; }}\n\
         svg {{ width: 100%; height: auto; }}\n\
         h2 {{ font-size: 1rem; }}\n\
         td {{ padding-right: 2rem; }}\n\
         th {{ text-align: left; font-weight: normal; padding-right: 2rem; color: #59636e; }}\n\
         @media (prefers-color-scheme: dark) {{ body {{ background: #0d1117; color: #e6edf3; }} \
         th {{ color: #9198a1; }} }}\n\
         </style>\n</head>\n<body>\n{svg}\n<p>{run}</p>\n<table>\n{rows}</table>\n\
         <h2>Requested resources</h2>\n{usage}{failed}{notes}</body>\n</html>\n"
    )
}
