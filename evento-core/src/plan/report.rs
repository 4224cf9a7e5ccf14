//! A text put together while compiling.

use crate::{ComponentDescriptor, HandlerDescriptor, Location};

/// The problems found so far; what is past its capacity is cut off.
pub(super) struct Report {
    bytes: [u8; Self::CAPACITY],
    len: usize,
}

impl Report {
    const CAPACITY: usize = 8192;

    pub(super) const fn new() -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) const fn as_str(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "the plan contradicts itself",
        }
    }

    /// Begins the next problem.
    pub(super) const fn line(&mut self) -> &mut Self {
        if self.is_empty() { self } else { self.text("\n") }
    }

    /// Adds `text`, or nothing of it where it has no room.
    pub(super) const fn text(&mut self, text: &str) -> &mut Self {
        let text = text.as_bytes();
        if text.len() > Self::CAPACITY - self.len {
            return self;
        }
        let (_, rest) = self.bytes.split_at_mut(self.len);
        rest.split_at_mut(text.len()).0.copy_from_slice(text);
        self.len += text.len();
        self
    }

    /// Adds `file:line`.
    pub(super) const fn place(&mut self, place: &Location) -> &mut Self {
        let mut digits = [b'0'; 10];
        let mut start = digits.len();
        let mut rest = place.line;
        loop {
            start -= 1;
            digits[start] += (rest % 10).to_le_bytes()[0];
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        match std::str::from_utf8(digits.split_at(start).1) {
            Ok(digits) => self.text(place.file).text(":").text(digits),
            Err(_) => self.text(place.file),
        }
    }

    /// Adds `` `Component::method` (file:line) ``.
    pub(super) const fn handler(&mut self, component: &ComponentDescriptor, handler: &HandlerDescriptor) -> &mut Self {
        self.text("`").text(component.name).text("::").text(handler.method).text("` (");
        self.place(&handler.location).text(")")
    }
}

#[cfg(test)]
mod tests {
    use super::Report;
    use crate::Location;

    #[test]
    fn numbers_are_written_out() {
        for line in [0, 7, 10, 4_294_967_295] {
            let mut report = Report::new();
            report.place(&Location { file: "a.rs", line, module: "a" });
            assert_eq!(report.as_str(), format!("a.rs:{line}"));
        }
    }

    #[test]
    fn what_has_no_room_is_cut_off() {
        let mut report = Report::new();
        for _ in 0..2000 {
            report.line().text("ä problem");
        }
        assert!(report.as_str().starts_with("ä problem\nä problem"));
        assert!(report.as_str().len() <= Report::CAPACITY);
    }
}
