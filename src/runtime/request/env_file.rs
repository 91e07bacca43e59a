//! Files of variables that `fileKeyRef` refers to (pkg/kubelet/util/env): lines of `NAME='value'`,
//! as a POSIX shell reads them. A value stands in single quotes and is taken as it is, over the ends
//! of lines too; there are blank lines and comments.

/// Why the file can't be read. Holds nothing of the file's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Malformed {
    /// From 1.
    pub line: usize,
    pub what: &'static str,
}

/// The value of the first variable called `key`; `None` when there is none. What stands behind it
/// isn't looked at.
pub fn value<'t>(text: &'t str, key: &str) -> Result<Option<&'t str>, Malformed> {
    let mut rest = text;
    let mut line = 1;
    while !rest.is_empty() {
        let malformed = |what| Malformed { line, what };
        let (first, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let trimmed = first.trim_start();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            (rest, line) = (after, line + 1);
            continue;
        }
        let (name, _) = trimmed.split_once('=').ok_or_else(|| malformed("NAME='value' is expected"))?;
        if name.is_empty() {
            return Err(malformed("there is no name before '='"));
        }
        if name.contains(char::is_whitespace) {
            return Err(malformed("there must be no white space in a name, nor before '='"));
        }
        let start = first.len() - trimmed.len() + name.len() + 1;
        let quoted = rest.get(start..).unwrap_or_default();
        let inner = quoted.strip_prefix('\'').ok_or_else(|| malformed("a value must stand in single quotes"))?;
        let (value, tail) = inner.split_once('\'').ok_or_else(|| malformed("the closing quote is missing"))?;
        line += value.matches('\n').count();
        let (tail, after) = tail.split_once('\n').unwrap_or((tail, ""));
        let comment = tail.trim_start();
        let empty = comment.is_empty() || comment.starts_with('#') && comment.len() < tail.len();
        if !empty {
            return Err(Malformed { line, what: "there must be nothing behind the closing quote" });
        }
        if name == key {
            return Ok(Some(value));
        }
        (rest, line) = (after, line + 1);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        type Want = Result<Option<&'static str>, (usize, &'static str)>;
        let table: &[(&str, Want)] = &[
            ("", Ok(None)),
            ("A='1'\nKEY='2'\n", Ok(Some("2"))),
            ("KEY='2'", Ok(Some("2"))),
            ("KEY='1'\nKEY='2'\n", Ok(Some("1"))),
            ("# c\n\n  \t\n   # d\n\tKEY='v'\n", Ok(Some("v"))),
            ("KEY='v' # why\n", Ok(Some("v"))),
            ("KEY='v'   \r\n", Ok(Some("v"))),
            ("KEY='a=b #c $D ${E} \"f\" \\n'", Ok(Some("a=b #c $D ${E} \"f\" \\n"))),
            ("KEY=''\n", Ok(Some(""))),
            ("A='x\n\ny'\nKEY='1\n 2\n'\n", Ok(Some("1\n 2\n"))),
            ("KEY='v'\nbroken\n", Ok(Some("v"))),
            ("key='v'\nKEYS='w'", Ok(None)),
            ("KEY=v", Err((1, "single quotes"))),
            ("KEY=\"v\"", Err((1, "single quotes"))),
            ("KEY= 'v'", Err((1, "single quotes"))),
            ("KEY='v", Err((1, "closing quote"))),
            ("A='1'\nKEY ='v'", Err((2, "white space"))),
            ("export KEY='v'", Err((1, "white space"))),
            ("A='1\n2' x\nKEY='v'", Err((2, "nothing behind"))),
            ("A='1''2'\nKEY='v'", Err((1, "nothing behind"))),
            ("A='1'#x\nKEY='v'", Err((1, "nothing behind"))),
            ("A='1'\nnothing\nKEY='v'", Err((2, "NAME='value'"))),
            ("='1'\nKEY='v'", Err((1, "no name"))),
        ];
        for (text, want) in table {
            match (value(text, "KEY"), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, *want, "{text:?}"),
                (Err(e), Err((line, what))) => {
                    assert!(e.line == *line && e.what.contains(what), "{text:?}: {e}");
                }
                (got, want) => panic!("{text:?}: {got:?}, not {want:?}"),
            }
        }
    }
}
