//! Splits what a program writes to its terminal into text, controls and escape sequences
//! (ECMA-48, DEC VT parser).
//!
//! One character at a time after an incremental decoder, so that any split of the bytes
//! gives the same actions. Everything is bounded: parameters are few and small, and a
//! string that does not end hides no more than its limit.

use crate::world::utf8::Utf8Stream;

/// Parameters of a sequence that are kept; the rest is passed over.
const PARAMETERS: usize = 16;
/// The largest parameter; larger ones are this large.
const LARGEST: u16 = 9_999;
/// An escape string that has not ended by then was none.
const STRING_LIMIT: usize = 4096;

/// What a piece of output asks the terminal to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action<'a> {
    Print(char),
    /// A C0 control.
    Control(char),
    /// `ESC`, perhaps an intermediate, and a final character.
    Escape {
        intermediate: Option<char>,
        last: char,
    },
    Sequence(&'a Sequence),
}

/// `CSI` with its parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sequence {
    /// `?`, `>` and their like.
    pub(super) private: Option<char>,
    pub(super) intermediate: Option<char>,
    pub(super) last: char,
    parameters: [Option<u16>; PARAMETERS],
    count: usize,
}

impl Sequence {
    /// A parameter as counts are meant: a missing one and 0 are 1.
    pub(super) fn count(&self, index: usize) -> usize {
        self.number(index).max(1).into()
    }

    /// A parameter; a missing one is 0.
    pub(super) fn number(&self, index: usize) -> u16 {
        self.parameters
            .get(index)
            .copied()
            .flatten()
            .unwrap_or_default()
    }

    /// All parameters, at least one.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u16> + '_ {
        (0..=self.count.min(PARAMETERS - 1)).map(|index| self.number(index))
    }

    fn digit(&mut self, digit: u16) {
        if let Some(parameter) = self.parameters.get_mut(self.count) {
            let value = parameter
                .unwrap_or_default()
                .saturating_mul(10)
                .saturating_add(digit);
            *parameter = Some(value.min(LARGEST));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    Escape,
    EscapeOne(char),
    Sequence,
    /// A sequence that makes no sense: passed over to its final character.
    Ignored,
    /// Titles, links, device strings, until BEL or `ESC \`; with the length so far.
    Text7 {
        length: usize,
    },
    /// `ESC` inside such a string.
    Text7Escape,
}

/// The parser of one terminal.
pub(super) struct Parser {
    characters: Utf8Stream,
    machine: Machine,
}

/// What the parser is in the middle of.
struct Machine {
    state: State,
    sequence: Sequence,
}

impl Parser {
    pub(super) fn new() -> Self {
        Self {
            characters: Utf8Stream::new(),
            machine: Machine {
                state: State::Text,
                sequence: Sequence::default(),
            },
        }
    }

    /// Takes the next bytes, and gives `act` what they mean, in order.
    pub(super) fn push(&mut self, bytes: &[u8], act: &mut impl FnMut(Action<'_>)) {
        let Self {
            characters,
            machine,
        } = self;
        characters.push(bytes, |text| {
            for character in text.chars() {
                machine.character(character, act);
            }
        });
    }
}

impl Machine {
    fn character(&mut self, character: char, act: &mut impl FnMut(Action<'_>)) {
        match (self.state, character) {
            (State::Text, '\u{1b}') => self.state = State::Escape,
            (State::Text, '\u{9b}') => self.begin_sequence(),
            (State::Text, control @ ('\0'..='\u{1f}' | '\u{7f}')) => act(Action::Control(control)),
            (State::Text, '\u{80}'..='\u{9f}') => {}
            (State::Text, other) => act(Action::Print(other)),
            (State::Text7 { .. } | State::Text7Escape, _) => self.string(character, act),
            // CAN and SUB end what has begun.
            (_, '\u{18}' | '\u{1a}') => self.state = State::Text,
            (_, '\u{1b}') => self.state = State::Escape,
            (_, control @ '\0'..='\u{1f}') => act(Action::Control(control)),
            (_, '\u{7f}') => {}
            (State::Escape, '[') => self.begin_sequence(),
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => {
                self.state = State::Text7 { length: 0 };
            }
            (State::Escape, intermediate @ ' '..='/') => {
                self.state = State::EscapeOne(intermediate);
            }
            (State::Escape, last) => {
                self.state = State::Text;
                if last.is_ascii() {
                    act(Action::Escape {
                        intermediate: None,
                        last,
                    });
                } else {
                    act(Action::Print(last));
                }
            }
            (State::EscapeOne(_), ' '..='/') => {}
            (State::EscapeOne(intermediate), last) => {
                self.state = State::Text;
                act(Action::Escape {
                    intermediate: Some(intermediate),
                    last,
                });
            }
            (State::Sequence, digit @ '0'..='9') => {
                let digit = u16::try_from(u32::from(digit) - u32::from('0')).unwrap_or_default();
                self.sequence.digit(digit);
            }
            // Sub-parameters are of colours alone, which are not kept.
            (State::Sequence, ';' | ':') => {
                self.sequence.count = (self.sequence.count + 1).min(PARAMETERS);
            }
            (State::Sequence, private @ '<'..='?') => self.sequence.private = Some(private),
            (State::Sequence, intermediate @ ' '..='/') => {
                self.sequence.intermediate = Some(intermediate);
            }
            (State::Sequence, last @ '@'..='~') => {
                self.state = State::Text;
                self.sequence.last = last;
                act(Action::Sequence(&self.sequence));
            }
            (State::Ignored, '@'..='~') => self.state = State::Text,
            (State::Sequence | State::Ignored, _) => self.state = State::Ignored,
        }
    }

    fn begin_sequence(&mut self) {
        self.sequence = Sequence::default();
        self.state = State::Sequence;
    }

    fn string(&mut self, character: char, act: &mut impl FnMut(Action<'_>)) {
        match (self.state, character) {
            (_, '\u{7}' | '\u{18}' | '\u{1a}' | '\u{9c}') => self.state = State::Text,
            (State::Text7 { .. }, '\u{1b}') => self.state = State::Text7Escape,
            (State::Text7Escape, '\\') => self.state = State::Text,
            (State::Text7Escape, _) => {
                // The string was cut off by another sequence.
                self.state = State::Escape;
                self.character(character, act);
            }
            (State::Text7 { length }, _) if length < STRING_LIMIT => {
                self.state = State::Text7 { length: length + 1 };
            }
            _ => {
                self.state = State::Text;
                self.character(character, act);
            }
        }
    }
}
