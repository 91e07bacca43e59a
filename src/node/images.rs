//! The images of the node, as its status lists them: the largest ones
//! (pkg/kubelet/nodestatus/setters.go, `Images`). Pure.

use serde_json::{Value, json};

use crate::cri::Image;

/// Names that are shown of one image.
const MAX_NAMES: usize = 5;

/// The `max` largest images; all of them with `None`.
pub fn images(mut all: Vec<Image>, max: Option<u32>) -> Value {
    all.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    if let Some(max) = max {
        all.truncate(usize::try_from(max).unwrap_or(usize::MAX));
    }
    all.iter().map(|image| json!({"names": names(image), "sizeBytes": image.size})).collect()
}

fn names(image: &Image) -> Vec<&str> {
    let all = image.repo_digests.iter().chain(&image.repo_tags).map(String::as_str);
    all.filter(|name| !name.starts_with("<none>")).take(MAX_NAMES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, size: u64, tags: usize) -> Image {
        Image {
            id: id.to_owned(),
            repo_tags: (0..tags).map(|i| format!("{id}:{i}")).collect(),
            repo_digests: vec![format!("{id}@sha256:1"), "<none>@<none>".to_owned()],
            size,
            user: None,
            pinned: false,
        }
    }

    #[test]
    fn the_largest_ones() {
        let all = || vec![image("b", 2, 1), image("a", 2, 0), image("c", 9, 7)];
        assert_eq!(
            images(all(), Some(2)),
            json!([
                {"names": ["c@sha256:1", "c:0", "c:1", "c:2", "c:3"], "sizeBytes": 9},
                {"names": ["a@sha256:1"], "sizeBytes": 2},
            ])
        );
        assert_eq!(images(all(), None).as_array().map(Vec::len), Some(3));
        assert_eq!(images(all(), Some(0)), json!([]));
    }
}
