//! What is wrong with a topology, and how it is shown: file, line, column, the source with a mark under the place, and what to do.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use super::locate::{Spot, locate};
use super::path::Path;

/// Most problems that are kept; the rest are counted. Each costs a reading of the text to find its place.
const KEPT_MAX: usize = 40;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Short name of its kind, such as `unknown-node`.
    pub code: &'static str,
    /// What is wrong, as a lower-case sentence without a full stop.
    pub title: String,
    /// What stands at the place, in a few words.
    pub label: String,
    /// What to do.
    pub help: Option<String>,
    place: Place,
}

#[derive(Clone, Debug, PartialEq)]
enum Place {
    Path(Path, Spot),
    /// A piece of a line of the value there, as both are written in it; seldom, and large, so apart.
    Within(Box<(Path, String, String)>),
    /// Bytes of the text.
    Span(Range<usize>),
    /// Bytes of an argument of `--set`, by its position.
    Argument(usize, Range<usize>),
}

impl Problem {
    /// Something wrong with the value at `path`.
    pub fn new(code: &'static str, path: &Path, title: impl Into<String>) -> Self {
        let place = Place::Path(path.clone(), Spot::Value);
        Self { code, title: title.into(), label: String::new(), help: None, place }
    }

    /// Something wrong with the key at the end of `path`.
    pub fn at_key(code: &'static str, path: &Path, title: impl Into<String>) -> Self {
        Self { place: Place::Path(path.clone(), Spot::Key), ..Self::new(code, path, title) }
    }

    /// Something wrong with a piece of one line of the text at `path`.
    pub fn within(code: &'static str, path: &Path, line: &str, piece: &str, title: impl Into<String>) -> Self {
        let place = Place::Within(Box::new((path.clone(), line.to_owned(), piece.to_owned())));
        Self { place, ..Self::new(code, path, title) }
    }

    /// Something wrong with these bytes of the text.
    pub(super) fn at_span(code: &'static str, span: Range<usize>, title: impl Into<String>) -> Self {
        Self { place: Place::Span(span), ..Self::new(code, &Path::root(), title) }
    }

    /// Something wrong with an argument of `--set` as such.
    pub(super) fn in_argument(code: &'static str, argument: usize, title: impl Into<String>) -> Self {
        Self { place: Place::Argument(argument, 0..usize::MAX), ..Self::new(code, &Path::root(), title) }
    }

    /// The same problem, shown at `to` where it lies at or below `from`; `None` where it lies elsewhere.
    pub(super) fn moved(mut self, from: &Path, to: &Path) -> Option<Self> {
        let path = match &self.place {
            Place::Path(path, _) => path,
            Place::Within(within) => &within.0,
            Place::Span(_) | Place::Argument(..) => return None,
        };
        if !from.holds(path) {
            return None;
        }
        self.place = Place::Path(to.clone(), Spot::Value);
        Some(self)
    }

    /// Says what stands at the place.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// What a topology was made from, for showing places in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The file's name as the user wrote it.
    pub(super) file: String,
    /// Its text.
    pub(super) text: String,
    /// `--set` arguments with the paths that they changed, in order; no path for one that changed nothing.
    pub(super) sets: Vec<(Option<Path>, String)>,
}

impl Source {
    /// Turns a path into bytes, by reading the text: done once a problem.
    fn find(&self, place: &Place) -> Place {
        let (path, spot) = match place {
            Place::Path(path, spot) => (path, spot),
            Place::Within(within) => return self.find_within(&within.0, &within.1, &within.2),
            Place::Span(_) | Place::Argument(..) => return place.clone(),
        };
        let sets = self.sets.iter().enumerate().rev();
        let by_set = sets
            .filter_map(|(index, (set, argument))| set.as_ref().map(|set| (index, set, argument)))
            .find(|(_, set, _)| set.holds(path));
        let Some((index, set, argument)) = by_set else {
            return Place::Span(locate(&self.text, path, *spot).unwrap_or(0..0));
        };
        let value = argument.find('=').map_or(0, |equals| equals + 1);
        let key = *spot == Spot::Key && set == path;
        Place::Argument(index, if key { 0..value.saturating_sub(1) } else { value..argument.len() })
    }

    /// A piece of a line of a text; the whole text where it is not written as it reads, with escapes for instance.
    fn find_within(&self, path: &Path, line: &str, piece: &str) -> Place {
        let whole = self.find(&Place::Path(path.clone(), Spot::Value));
        let Place::Span(span) = &whole else { return whole };
        let Some(at) = self.text.get(span.start..).and_then(|rest| rest.find(line)) else { return whole };
        let start = span.start + at + line.find(piece).unwrap_or_default();
        Place::Span(start..start + piece.len())
    }

    /// The name and text that a found place is in, and its bytes.
    fn shown(&self, place: &Place) -> (&str, &str, Range<usize>) {
        match place {
            Place::Argument(index, span) => {
                let argument = self.sets.get(*index).map_or("", |(_, argument)| argument.as_str());
                ("--set", argument, span.start.min(argument.len())..span.end.min(argument.len()))
            }
            Place::Span(span) => (&self.file, &self.text, span.clone()),
            Place::Path(..) | Place::Within(..) => (&self.file, &self.text, 0..0),
        }
    }

    /// `file:line:column` of a problem, both from 1, columns in characters.
    fn coordinates(&self, problem: &Problem) -> (String, usize, usize) {
        let (file, text, span) = self.shown(&problem.place);
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        (file.to_owned(), line, column)
    }
}

/// Everything that is wrong with one topology. Displays as text without colours.
#[derive(Clone, Debug, PartialEq)]
pub struct Problems {
    pub(super) source: Source,
    list: Vec<Problem>,
    /// How many there are beside those in `list`.
    more: usize,
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl Problems {
    /// Problems found after reading, by `plan` for instance.
    pub fn new(source: &Source, mut list: Vec<Problem>) -> Self {
        let more = list.len().saturating_sub(KEPT_MAX);
        list.truncate(KEPT_MAX);
        for problem in &mut list {
            problem.place = source.find(&problem.place);
        }
        list.sort_by_cached_key(|problem| source.coordinates(problem));
        Self { source: source.clone(), list, more }
    }

    /// The problems, in file order.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    /// `file:line:column` of each problem, in order.
    pub fn places(&self) -> Vec<(String, usize, usize)> {
        self.list.iter().map(|problem| self.source.coordinates(problem)).collect()
    }

    /// All of it as text, for a terminal with colours or for anything else.
    pub fn render(&self, colours: bool) -> String {
        let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for problem in &self.list {
            out.push_str(&self.render_one(problem, &renderer));
            out.push_str("\n\n");
        }
        if self.more > 0 {
            out.push_str(&format!("… and {} more\n\n", self.more));
        }
        let count = self.list.len() + self.more;
        let noun = if count == 1 { "problem" } else { "problems" };
        out.push_str(&format!("{}: {count} {noun}; nothing was created", self.source.file));
        out
    }

    fn render_one(&self, problem: &Problem, renderer: &Renderer) -> String {
        let (file, text, span) = self.source.shown(&problem.place);
        let text = visible(text);
        let [title, label] = [&problem.title, &problem.label].map(|words| visible(words));
        let help = problem.help.as_deref().map(visible);
        let mut span = span.start.min(text.len())..span.end.min(text.len());
        while !text.is_char_boundary(span.start) {
            span.start -= 1;
        }
        while !text.is_char_boundary(span.end) {
            span.end += 1;
        }
        let mark = AnnotationKind::Primary.span(span).label(label.as_str());
        let snippet = Snippet::source(text.as_str()).path(file).annotation(mark);
        let mut group = Level::ERROR.primary_title(title.as_str()).id(problem.code).element(snippet);
        if let Some(help) = &help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        renderer.render(&[group])
    }
}

/// The text with control characters other than line ends and tabs replaced, byte for byte, so that nothing in a file can
/// steer a terminal and places stay where they are.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !matches!(c, '\n' | '\t' | '\r') {
            out.extend(std::iter::repeat_n('?', c.len_utf8()));
        } else {
            out.push(c);
        }
    }
    out
}
