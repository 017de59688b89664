//! What a person sends: from a prompt's blocks to the text that the model reads.

use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use terret_log::{BlobError, Blobs, ImageRef, InjectedBy, Payload, PromptBlock};

/// A block of a prompt, as a face read it from its protocol.
#[derive(Debug, Clone, PartialEq)]
pub enum InputBlock {
    Text(String),
    /// A file or page that the person points at (`ACP resource_link`).
    ResourceLink {
        uri: String,
        name: String,
    },
    /// A text that travels with the prompt (`ACP resource`).
    Resource {
        uri: String,
        mime_type: Option<String>,
        text: String,
    },
    Image {
        mime_type: String,
        bytes: Vec<u8>,
    },
}

/// Input on its way into a step: logged as `user/message` when it starts a turn, and
/// as `context/injected` when it joins one.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub text: String,
    pub images: Vec<ImageRef>,
    pub blocks: Vec<PromptBlock>,
    pub source: InjectedBy,
}

/// Input that a step is about to log, with the way it will be logged.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// The input that started the turn.
    Prompt(Input),
    /// Input that was waiting in the inbox.
    Injected(Input),
}

impl Input {
    /// Plain text of ours, such as the note that a job ended.
    pub fn notice(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            images: Vec::new(),
            blocks: Vec::new(),
            source: InjectedBy::Terret,
        }
    }

    /// Turns a prompt into what the model reads. Text blocks are joined by newlines in
    /// their order; a link becomes its absolute, decoded path and name (case R036);
    /// images are kept as blobs. With `images` false each image becomes a note, so that
    /// nothing is dropped without a word (case R038).
    ///
    /// # Errors
    /// When an image cannot be stored.
    pub fn from_blocks(
        blocks: Vec<InputBlock>,
        blobs: &Blobs,
        images: bool,
    ) -> Result<Self, BlobError> {
        let mut text = String::new();
        let mut image_refs = Vec::new();
        let mut kept = Vec::new();
        for block in blocks {
            match block {
                InputBlock::Text(piece) => {
                    push_line(&mut text, &piece);
                    kept.push(PromptBlock::Text { text: piece });
                }
                InputBlock::ResourceLink { uri, name } => {
                    push_line(&mut text, &link_text(&uri, &name));
                    kept.push(PromptBlock::ResourceLink { uri, name });
                }
                InputBlock::Resource {
                    uri,
                    mime_type,
                    text: content,
                } => {
                    let place = file_path(&uri)
                        .map_or_else(|| uri.clone(), |path| path.display().to_string());
                    push_line(
                        &mut text,
                        &format!("<resource uri=\"{place}\">\n{content}\n</resource>"),
                    );
                    kept.push(PromptBlock::Resource {
                        uri,
                        mime_type,
                        text: content,
                    });
                }
                InputBlock::Image { mime_type, bytes } => {
                    let image = ImageRef {
                        mime_type,
                        blob: blobs.put(&bytes)?,
                    };
                    if images {
                        image_refs.push(image.clone());
                    } else {
                        push_line(
                            &mut text,
                            &format!(
                                "[an image ({}, {} bytes) was attached, which this model cannot see]",
                                image.mime_type,
                                bytes.len()
                            ),
                        );
                    }
                    kept.push(PromptBlock::Image { image });
                }
            }
        }
        Ok(Self {
            text,
            images: image_refs,
            blocks: kept,
            source: InjectedBy::Steer,
        })
    }

    /// The first text that the person wrote, for titles and commands.
    pub fn first_text(&self) -> &str {
        self.blocks
            .iter()
            .find_map(|block| match block {
                PromptBlock::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .unwrap_or(&self.text)
    }
}

impl Claim {
    /// The event that logs it.
    pub(crate) fn into_payload(self) -> Payload {
        match self {
            Self::Prompt(input) => {
                let (text, images, blocks) = input.into_logged();
                Payload::UserMessage {
                    text,
                    images,
                    blocks,
                }
            }
            Self::Injected(input) => {
                let source = input.source;
                let (text, images, blocks) = input.into_logged();
                Payload::ContextInjected {
                    text,
                    images,
                    blocks,
                    source,
                }
            }
        }
    }
}

impl Input {
    /// What the log keeps. Blocks that say what text and images say already are left out:
    /// a prompt is not written twice.
    fn into_logged(self) -> (String, Vec<ImageRef>, Vec<PromptBlock>) {
        let plain = match self.blocks.split_first() {
            Some((PromptBlock::Text { text }, rest)) => *text == self.text
                && rest.len() == self.images.len()
                && rest.iter().zip(&self.images).all(
                    |(block, kept)| matches!(block, PromptBlock::Image { image } if image == kept),
                ),
            _ => false,
        };
        let blocks = if plain { Vec::new() } else { self.blocks };
        (self.text, self.images, blocks)
    }
}

/// The local path that a `file:` URI, or a bare absolute path, names. Percent-encoding
/// is undone by bytes, so every legal file name comes back (case R117).
pub fn file_path(uri: &str) -> Option<PathBuf> {
    if uri.starts_with('/') {
        return Some(PathBuf::from(uri));
    }
    let rest = uri.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return None;
    }
    // `#` and `?` in a name are encoded in a well-formed URI; what follows a raw one
    // is a fragment such as a line range.
    let end = path.find(['#', '?']).unwrap_or(path.len());
    let bytes: Vec<u8> = percent_decode_str(path.get(..end)?).collect();
    Some(bytes_path(bytes))
}

#[cfg(unix)]
fn bytes_path(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(not(unix))]
fn bytes_path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(&bytes).into_owned())
}

/// The `file:` URI of an absolute path; [`file_path`] gives the same path back.
pub fn file_uri(path: &Path) -> String {
    const KEPT: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
        .remove(b'/')
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'~');
    #[cfg(unix)]
    let encoded = {
        use std::os::unix::ffi::OsStrExt as _;
        percent_encoding::percent_encode(path.as_os_str().as_bytes(), KEPT).to_string()
    };
    #[cfg(not(unix))]
    let encoded = percent_encoding::utf8_percent_encode(&path.to_string_lossy(), KEPT).to_string();
    format!("file://{encoded}")
}

fn link_text(uri: &str, name: &str) -> String {
    let Some(path) = file_path(uri) else {
        return format!("[{name}]({uri})");
    };
    let place = path.display();
    // A look, not a read: the model is told at once when the link leads nowhere.
    match terret_tools::world::look(&path) {
        Ok(_) => format!("@{place} ({name})"),
        Err(why) => format!("@{place} ({name}; cannot be read: {why})"),
    }
}

fn push_line(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}
