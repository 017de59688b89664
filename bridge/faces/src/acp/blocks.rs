//! A prompt's content blocks, read one by one so that a refusal names the block and the
//! field at fault, and repeats nothing of what they hold.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use terret_acp::{RawParams, RpcError};
use terret_engine::InputBlock;

/// The most text of a prompt, in bytes: far over what any model takes, and well below what
/// one event of a log can hold.
const MAX_TEXT: usize = 8 * 1024 * 1024;

/// Reads `prompt`.
///
/// # Errors
/// -32602 when it is missing, empty, or a block cannot be used: audio, which is not
/// offered; an image that is not base64 (R038); an unknown type.
pub(crate) fn read(raw: &RawParams) -> Result<Vec<InputBlock>, RpcError> {
    let params = raw.to_value()?;
    let blocks = match params.get("prompt") {
        Some(Value::Array(blocks)) => blocks,
        Some(_) => {
            return Err(RpcError::invalid_params(
                "`prompt` must be a list of content blocks",
            ));
        }
        None => return Err(RpcError::invalid_params("`prompt` is missing")),
    };
    let read: Vec<InputBlock> = blocks
        .iter()
        .enumerate()
        .map(|(at, block)| read_block(at, block))
        .collect::<Result<_, _>>()?;
    let text: usize = read
        .iter()
        .map(|block| match block {
            InputBlock::Text(text) | InputBlock::Resource { text, .. } => text.len(),
            _ => 0,
        })
        .sum();
    if text > MAX_TEXT {
        return Err(RpcError::invalid_params(format!(
            "`prompt` holds {text} bytes of text and may hold {MAX_TEXT}, which is the limit; name large files by a link, to be read in parts"
        )));
    }
    let says_something = read.iter().any(|block| match block {
        InputBlock::Text(text) => !text.trim().is_empty(),
        _ => true,
    });
    if says_something {
        Ok(read)
    } else {
        Err(RpcError::invalid_params("`prompt` is empty"))
    }
}

fn read_block(at: usize, block: &Value) -> Result<InputBlock, RpcError> {
    let field = |path: &str| block.pointer(path).and_then(Value::as_str);
    let need = |path: &str| {
        field(path).map(str::to_owned).ok_or_else(|| {
            let name = path.replace('/', ".");
            RpcError::invalid_params(format!("`prompt[{at}]{name}` is missing or not a string"))
        })
    };
    match field("/type") {
        Some("text") => Ok(InputBlock::Text(need("/text")?)),
        Some("resource_link") => {
            let uri = need("/uri")?;
            let name = field("/name").map_or_else(|| last_segment(&uri).to_owned(), str::to_owned);
            Ok(InputBlock::ResourceLink { uri, name })
        }
        Some("resource") => read_resource(at, block),
        Some("image") => {
            let bytes = decode(&need("/data")?).ok_or_else(|| {
                RpcError::invalid_params(format!("`prompt[{at}].data` is not valid base64"))
            })?;
            let mime_type = field("/mimeType").unwrap_or("image/png").to_owned();
            Ok(InputBlock::Image { mime_type, bytes })
        }
        Some("audio") => Err(RpcError::invalid_params(format!(
            "`prompt[{at}]` is audio, which is not supported; send text, images or files"
        ))),
        Some(_) => Err(RpcError::invalid_params(format!(
            "`prompt[{at}].type` is not one that is known here"
        ))),
        None => Err(RpcError::invalid_params(format!(
            "`prompt[{at}].type` is missing or not a string"
        ))),
    }
}

/// An embedded text travels whole; of other content an image is passed on, and the rest
/// is named, so that nothing is dropped without a word.
fn read_resource(at: usize, block: &Value) -> Result<InputBlock, RpcError> {
    let field = |path: &str| block.pointer(path).and_then(Value::as_str);
    let uri = field("/resource/uri")
        .ok_or_else(|| {
            RpcError::invalid_params(format!(
                "`prompt[{at}].resource.uri` is missing or not a string"
            ))
        })?
        .to_owned();
    let mime_type = field("/resource/mimeType").map(str::to_owned);
    if let Some(text) = field("/resource/text") {
        return Ok(InputBlock::Resource {
            uri,
            mime_type,
            text: text.to_owned(),
        });
    }
    let Some(blob) = field("/resource/blob") else {
        return Err(RpcError::invalid_params(format!(
            "`prompt[{at}].resource` has neither `text` nor `blob`"
        )));
    };
    let bytes = decode(blob).ok_or_else(|| {
        RpcError::invalid_params(format!("`prompt[{at}].resource.blob` is not valid base64"))
    })?;
    let kind = mime_type
        .clone()
        .unwrap_or_else(|| "unknown type".to_owned());
    if kind.starts_with("image/") {
        return Ok(InputBlock::Image {
            mime_type: kind,
            bytes,
        });
    }
    let text = format!(
        "[binary content ({kind}, {} bytes), which cannot be shown to a model]",
        bytes.len()
    );
    Ok(InputBlock::Resource {
        uri,
        mime_type,
        text,
    })
}

/// Base64 with or without line ends in it; an empty one is no content.
fn decode(text: &str) -> Option<Vec<u8>> {
    let bytes = if text.contains(|c: char| c.is_ascii_whitespace()) {
        let squeezed: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        STANDARD.decode(squeezed)
    } else {
        STANDARD.decode(text)
    };
    bytes.ok().filter(|bytes| !bytes.is_empty())
}

fn last_segment(uri: &str) -> &str {
    uri.trim_end_matches('/').rsplit('/').next().unwrap_or(uri)
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "a failed unwrap is a failed test"
    )]

    use serde_json::json;

    use super::*;

    fn parse(prompt: Value) -> Result<Vec<InputBlock>, String> {
        let raw = RawParams::from_value(&json!({ "sessionId": "s", "prompt": prompt })).unwrap();
        read(&raw).map_err(|error| error.message.into_owned())
    }

    #[test]
    fn each_kind_of_block_is_read() {
        let blocks = parse(json!([
            {"type": "text", "text": "hi", "annotations": null},
            {"type": "resource_link", "uri": "/bare/path with space.py"},
            {"type": "resource", "resource": {"uri": "file:///r.md", "text": "rules", "mimeType": "text/markdown"}},
            {"type": "resource", "resource": {"uri": "file:///z.zip", "blob": "AAAA"}},
            {"type": "image", "data": "iVBO\nRw==", "mimeType": "image/png"}
        ]))
        .unwrap();
        assert_eq!(blocks.len(), 5);
        assert_eq!(
            blocks[1],
            InputBlock::ResourceLink {
                uri: "/bare/path with space.py".into(),
                name: "path with space.py".into()
            }
        );
        assert!(
            matches!(&blocks[3], InputBlock::Resource { text, .. } if text.contains("3 bytes"))
        );
        assert!(
            matches!(&blocks[4], InputBlock::Image { bytes, .. } if bytes == &[0x89, 0x50, 0x4e, 0x47])
        );
    }

    #[test]
    fn refusals_name_the_field_and_not_the_content() {
        for (prompt, words) in [
            (json!([]), "`prompt` is empty"),
            (json!("text"), "`prompt` must be a list of content blocks"),
            (
                json!([{"type": "text", "text": " \n"}]),
                "`prompt` is empty",
            ),
            (
                json!([{"type": "text"}]),
                "`prompt[0].text` is missing or not a string",
            ),
            (
                json!([{"type": "image", "data": "se cret!", "mimeType": "image/png"}]),
                "`prompt[0].data` is not valid base64",
            ),
            (
                json!([{"type": "image", "data": "", "mimeType": "image/png"}]),
                "`prompt[0].data` is not valid base64",
            ),
            (
                json!([{"type": "hologram"}]),
                "`prompt[0].type` is not one that is known here",
            ),
            (json!([{}]), "`prompt[0].type` is missing or not a string"),
        ] {
            assert_eq!(parse(prompt).unwrap_err(), words);
        }
        assert!(
            parse(json!([{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]))
                .unwrap_err()
                .contains("audio")
        );
    }
}
