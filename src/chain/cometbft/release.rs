//! Which line of CometBFT a node is of, as far as its files and its flush depend on it, and which application it runs.

use crate::chain::{ChainError, program};
use crate::engine::Build;
use crate::plan::{BESIDE, CometbftPlan};

/// The module that nodes are built from.
const MODULE: &str = "github.com/cometbft/cometbft";

/// A line of releases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Release {
    /// 0.37.
    V037,
    /// 0.38.
    #[default]
    V038,
    /// 1.0 and later.
    V1,
}

impl Release {
    /// From a version such as `v0.38.17`, `0.38` or `1`.
    fn of_version(version: &str) -> Option<Self> {
        let mut numbers = version.trim_start_matches('v').split(['.', '-']);
        match (numbers.next()?, numbers.next()) {
            ("0", Some("37")) => Some(Self::V037),
            ("0", Some("38")) => Some(Self::V038),
            ("1", _) => Some(Self::V1),
            _ => None,
        }
    }

    /// As far as the plan says it: by its `version`, or by the tag of an image.
    pub(super) fn written(options: &CometbftPlan, build: &Build) -> Option<Self> {
        let tag = if let Build::Image { reference } = build { reference.rsplit_once(':') } else { None };
        options.version.as_deref().or(tag.map(|(_, tag)| tag)).and_then(Self::of_version)
    }

    /// The same, or what the program itself says.
    pub(super) fn found(options: &CometbftPlan, build: &Build) -> Result<Self, ChainError> {
        if let Some(release) = Self::written(options, build) {
            return Ok(release);
        }
        let said = if let Build::Binary { path } = build { program::version(path, MODULE) } else { None };
        said.as_deref().and_then(Self::of_version).ok_or_else(|| {
            let said = said.as_ref().map_or_else(|| "no version".to_owned(), |version| format!("version {version}"));
            ChainError::new(format!(
                "tell which CometBFT {build} is: it names {said}, and files are known for 0.37, 0.38 and 1; write \
                 `version: \"0.38\"` under `chain.cometbft`"
            ))
        })
    }
}

/// The application of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum App {
    /// The kvstore that is built into `cometbft`.
    Kvstore,
    /// That of CometBFT's own end-to-end tests; its program, `test/e2e/node`, holds the node too.
    E2e,
    /// One in a process of its own.
    Beside,
}

impl App {
    /// By its name in topologies.
    pub(super) fn named(name: &str) -> Result<Self, ChainError> {
        match name {
            "persistent_kvstore" => Ok(Self::Kvstore),
            "e2e" => Ok(Self::E2e),
            BESIDE => Ok(Self::Beside),
            other => {
                Err(ChainError::new(format!("run the application `{other}`: there are persistent_kvstore and e2e")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_of_three_lines() {
        for (text, release) in [
            ("v0.37.15", Some(Release::V037)),
            ("0.38", Some(Release::V038)),
            ("v0.38.0-rc3", Some(Release::V038)),
            ("v1.0.1", Some(Release::V1)),
            ("1", Some(Release::V1)),
            ("v0.34.29", None),
            ("v2.0.0", None),
            ("latest", None),
            ("", None),
        ] {
            assert_eq!(Release::of_version(text), release, "{text}");
        }
    }
}
