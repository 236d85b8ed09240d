//! What plans depend on: [`DeviceModel`].

use std::fmt;
use std::str::FromStr;

use super::DeviceInfo;
use crate::GpuError;

/// The limits of a GPU on which plans depend: the choice of kernels, shapes of launches, and with
/// them the order of sums. Plans that are made for equal models give equal bits.
///
/// Its text, as in `capability=9.0 multiprocessors=132 …`, has the fields in the order of this
/// type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceModel {
    /// Compute capability, major and minor, such as (9, 0).
    pub compute_capability: (u32, u32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Maximum number of threads of a block.
    pub max_threads_per_block: u32,
    /// Maximum number of resident threads of a multiprocessor.
    pub max_threads_per_multiprocessor: u32,
    /// Maximum shared memory of a block after opting in, in bytes.
    pub shared_bytes_per_block: u32,
    /// Shared memory of a multiprocessor, in bytes.
    pub shared_bytes_per_multiprocessor: u32,
    /// Second-level cache, in bytes.
    pub l2_bytes: u64,
}

/// The names of the fields in texts, after that of the compute capability.
const NAMES: [&str; 6] = [
    "multiprocessors",
    "block_threads",
    "multiprocessor_threads",
    "block_shared_bytes",
    "multiprocessor_shared_bytes",
    "l2_bytes",
];

/// More multiprocessors than any GPU has.
const MOST_MULTIPROCESSORS: u32 = 1 << 16;

impl DeviceModel {
    /// The fields after the compute capability, in the order of [`NAMES`].
    fn numbers(&self) -> [u64; 6] {
        [
            self.multiprocessors.into(),
            self.max_threads_per_block.into(),
            self.max_threads_per_multiprocessor.into(),
            self.shared_bytes_per_block.into(),
            self.shared_bytes_per_multiprocessor.into(),
            self.l2_bytes,
        ]
    }
}

impl DeviceModel {
    /// The model with the lesser of each limit, whose plans run on both GPUs.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        Self {
            compute_capability: self.compute_capability.min(other.compute_capability),
            multiprocessors: self.multiprocessors.min(other.multiprocessors),
            max_threads_per_block: self.max_threads_per_block.min(other.max_threads_per_block),
            max_threads_per_multiprocessor: self
                .max_threads_per_multiprocessor
                .min(other.max_threads_per_multiprocessor),
            shared_bytes_per_block: self.shared_bytes_per_block.min(other.shared_bytes_per_block),
            shared_bytes_per_multiprocessor: self
                .shared_bytes_per_multiprocessor
                .min(other.shared_bytes_per_multiprocessor),
            l2_bytes: self.l2_bytes.min(other.l2_bytes),
        }
    }
}

/// Models whose limits are known without the GPU, as their vendor publishes them and their drivers
/// report them. `l2_bytes` of the H100 is less than here; no choice of a solver depends on it.
const KNOWN: [(&str, DeviceModel, u64); 2] = [
    (
        "NVIDIA A100",
        DeviceModel {
            compute_capability: (8, 0),
            multiprocessors: 108,
            max_threads_per_block: 1024,
            max_threads_per_multiprocessor: 2048,
            shared_bytes_per_block: 166_912,
            shared_bytes_per_multiprocessor: 167_936,
            l2_bytes: 41_943_040,
        },
        40 << 30,
    ),
    (
        "NVIDIA H100 or H200 (SXM)",
        DeviceModel {
            compute_capability: (9, 0),
            multiprocessors: 132,
            max_threads_per_block: 1024,
            max_threads_per_multiprocessor: 2048,
            shared_bytes_per_block: 232_448,
            shared_bytes_per_multiprocessor: 233_472,
            l2_bytes: 62_914_560,
        },
        80 << 30,
    ),
];

impl DeviceInfo {
    /// The usual GPU of an architecture such as `sm_90`, for plans on a machine without it; `None`
    /// where none is known.
    pub fn known(architecture: &str) -> Option<Self> {
        let known = KNOWN.iter().map(|&(name, model, memory_bytes)| Self {
            name: name.to_owned(),
            memory_bytes,
            ..Self::of_model(&model)
        });
        known.into_iter().find(|info| info.architecture() == architecture)
    }

    /// A GPU of which only its model is known. Its memory is taken to be without limit.
    pub fn of_model(model: &DeviceModel) -> Self {
        Self {
            name: "a GPU".to_owned(),
            compute_capability: model.compute_capability,
            multiprocessors: model.multiprocessors,
            max_threads_per_block: model.max_threads_per_block,
            max_threads_per_multiprocessor: model.max_threads_per_multiprocessor,
            shared_bytes_per_block: model.shared_bytes_per_block,
            shared_bytes_per_multiprocessor: model.shared_bytes_per_multiprocessor,
            l2_bytes: model.l2_bytes,
            memory_bytes: 1 << 60,
            ..Self::default()
        }
    }

    /// The limits on which plans depend.
    pub fn model(&self) -> DeviceModel {
        DeviceModel {
            compute_capability: self.compute_capability,
            multiprocessors: self.multiprocessors,
            max_threads_per_block: self.max_threads_per_block,
            max_threads_per_multiprocessor: self.max_threads_per_multiprocessor,
            shared_bytes_per_block: self.shared_bytes_per_block,
            shared_bytes_per_multiprocessor: self.shared_bytes_per_multiprocessor,
            l2_bytes: self.l2_bytes,
        }
    }

    /// This GPU with the limits of another model, which plans for that model stay within.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] where this GPU has less of what a launch may need: compute
    /// capability, threads, shared memory; and for more multiprocessors than any GPU has.
    pub fn planned_as(&self, model: &DeviceModel) -> Result<Self, GpuError> {
        let refused = |limit: &str, asked: String, own: String| GpuError::InvalidArgument {
            name: "model",
            expected: format!("one whose plans run on {}, with {limit} up to {own}", self.name),
            found: asked,
        };
        if model.compute_capability > self.compute_capability {
            let in_words = |(major, minor): (u32, u32)| format!("{major}.{minor}");
            let (asked, own) = (model.compute_capability, self.compute_capability);
            return Err(refused("compute capability", in_words(asked), in_words(own)));
        }
        let (asked, most) = (model.multiprocessors, MOST_MULTIPROCESSORS);
        if asked > most {
            return Err(refused(NAMES[0], asked.to_string(), most.to_string()));
        }
        let own = self.model().numbers();
        for (k, asked) in model.numbers().into_iter().enumerate().skip(1).take(4) {
            if asked > own[k] {
                return Err(refused(NAMES[k], asked.to_string(), own[k].to_string()));
            }
        }
        Ok(Self {
            compute_capability: model.compute_capability,
            multiprocessors: model.multiprocessors,
            max_threads_per_block: model.max_threads_per_block,
            max_threads_per_multiprocessor: model.max_threads_per_multiprocessor,
            shared_bytes_per_block: model.shared_bytes_per_block,
            shared_bytes_per_multiprocessor: model.shared_bytes_per_multiprocessor,
            l2_bytes: model.l2_bytes,
            ..self.clone()
        })
    }
}

impl fmt::Display for DeviceModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.compute_capability;
        write!(f, "capability={major}.{minor}")?;
        NAMES.iter().zip(self.numbers()).try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl FromStr for DeviceModel {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        let refused = |expected: &str| GpuError::InvalidArgument {
            name: "model",
            expected: expected.to_owned(),
            found: format!("{:?}", text.chars().take(200).collect::<String>()),
        };
        let mut fields = text.split_whitespace();
        let mut field = |name: &str| {
            let value = fields.next().and_then(|field| field.strip_prefix(name));
            value.and_then(|value| value.strip_prefix('='))
        };
        let capability = field("capability").and_then(|value| value.split_once('.'));
        let capability =
            capability.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let compute_capability =
            capability.ok_or_else(|| refused("a model that starts as in capability=9.0"))?;
        let mut number = |k: usize| {
            let value = field(NAMES[k]).and_then(|value| value.parse::<u64>().ok());
            let value = value.filter(|&value| k == 5 || u32::try_from(value).is_ok());
            value.ok_or_else(|| refused(&format!("{}=N in its place, N a number", NAMES[k])))
        };
        let model = Self {
            compute_capability,
            multiprocessors: number(0)? as u32,
            max_threads_per_block: number(1)? as u32,
            max_threads_per_multiprocessor: number(2)? as u32,
            shared_bytes_per_block: number(3)? as u32,
            shared_bytes_per_multiprocessor: number(4)? as u32,
            l2_bytes: number(5)?,
        };
        match fields.next() {
            None => Ok(model),
            Some(_) => Err(refused("nothing after l2_bytes=N")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> DeviceInfo {
        DeviceInfo {
            name: "NVIDIA H200".to_owned(),
            compute_capability: (9, 0),
            multiprocessors: 132,
            max_threads_per_block: 1024,
            max_threads_per_multiprocessor: 2048,
            shared_bytes_per_block: 232_448,
            shared_bytes_per_multiprocessor: 233_472,
            l2_bytes: 62_914_560,
            memory_bytes: 1 << 37,
            ..DeviceInfo::default()
        }
    }

    #[test]
    fn models_are_read_as_they_are_written() {
        let model = h200().model();

        let text = model.to_string();

        assert_eq!(
            text,
            "capability=9.0 multiprocessors=132 block_threads=1024 multiprocessor_threads=2048 \
             block_shared_bytes=232448 multiprocessor_shared_bytes=233472 l2_bytes=62914560"
        );
        assert_eq!(text.parse(), Ok(model));
    }

    #[test]
    fn known_architectures_have_the_limits_of_their_gpus() {
        assert_eq!(DeviceInfo::known("sm_90").map(|info| info.model()), Some(h200().model()));
        assert_eq!(DeviceInfo::known("sm_80").map(|info| info.multiprocessors), Some(108));
        assert_eq!(DeviceInfo::known("sm_91"), None);
        assert_eq!(DeviceInfo::of_model(&h200().model()).model(), h200().model());
    }

    #[test]
    fn the_least_model_is_within_both() {
        let (one, mut other) = (h200(), h200());
        (other.multiprocessors, other.l2_bytes) = (144, 1 << 20);
        (other.compute_capability, other.shared_bytes_per_block) = ((8, 9), 101_376);

        let least = one.model().least(&other.model());

        assert_eq!((least.multiprocessors, least.l2_bytes), (132, 1 << 20));
        assert_eq!((least.compute_capability, least.shared_bytes_per_block), ((8, 9), 101_376));
        assert!(one.planned_as(&least).is_ok() && other.planned_as(&least).is_ok());
        assert_eq!(least, other.model().least(&one.model()));
    }

    #[test]
    fn texts_that_are_no_models_are_refused() {
        let text = h200().model().to_string();
        for (from, to, expected) in [
            ("capability=9.0", "capability=9", "starts as in capability=9.0"),
            ("capability=9.0", "capability=9.x", "starts as in capability=9.0"),
            ("multiprocessors=132 ", "", "multiprocessors=N"),
            ("block_threads=1024", "block_threads=-1", "block_threads=N"),
            ("block_shared_bytes=232448", "block_shared_bytes=4294967296", "block_shared_bytes=N"),
            ("l2_bytes=62914560", "l2_bytes=62914560 more=1", "nothing after l2_bytes"),
        ] {
            let error = text.replacen(from, to, 1).parse::<DeviceModel>().unwrap_err();
            assert!(error.to_string().contains(expected), "{to}: {error}");
        }
        assert!("".parse::<DeviceModel>().is_err());
    }

    #[test]
    fn a_larger_gpu_plans_as_a_smaller_one() {
        let small = DeviceModel {
            compute_capability: (8, 0),
            multiprocessors: 200,
            shared_bytes_per_block: 166_912,
            ..h200().model()
        };

        let planned = h200().planned_as(&small).unwrap();

        assert_eq!(planned.model(), small);
        assert_eq!((planned.name, planned.memory_bytes), (h200().name, h200().memory_bytes));
    }

    #[test]
    fn a_smaller_gpu_does_not_plan_as_a_larger_one() {
        let own = h200().model();
        for (larger, limit) in [
            (DeviceModel { compute_capability: (10, 0), ..own }, "compute capability up to 9.0"),
            (DeviceModel { multiprocessors: u32::MAX, ..own }, "multiprocessors up to 65536"),
            (DeviceModel { max_threads_per_block: 2048, ..own }, "block_threads up to 1024"),
            (DeviceModel { max_threads_per_multiprocessor: 4096, ..own }, "up to 2048"),
            (DeviceModel { shared_bytes_per_block: 300_000, ..own }, "up to 232448"),
            (DeviceModel { shared_bytes_per_multiprocessor: 300_000, ..own }, "up to 233472"),
        ] {
            let error = h200().planned_as(&larger).unwrap_err().to_string();
            assert!(error.contains(limit), "{error}");
        }
    }
}
