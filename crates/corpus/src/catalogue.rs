//! The matrices of the sources, as the index of the SuiteSparse Matrix Collection describes them.

use std::fmt;
use std::str::FromStr;

use crate::CorpusError;

/// The matrices that a source measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// The 32 small matrices of Anzt et al. 2017, «Flexible batched sparse matrix-vector product on
    /// GPUs» (doi 10.1145/3148226.3148230).
    Flexible,
    /// The 14 of Table 3 of Bell and Garland 2009 (doi 10.1145/1654059.1654078).
    BellGarland,
    /// The 20 of Table I of Anzt, Tomov and Dongarra 2014 (UT-EECS-14-727).
    SellP,
    /// The 15 of Table I of Mazzucchi 2025.
    Mazzucchi,
}

impl List {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Flexible, Self::BellGarland, Self::SellP, Self::Mazzucchi];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flexible => "flexible",
            Self::BellGarland => "bell-garland",
            Self::SellP => "sell-p",
            Self::Mazzucchi => "mazzucchi",
        }
    }

    /// The names of its matrices, in the order of the source.
    pub fn members(self) -> &'static [&'static str] {
        match self {
            Self::Flexible => &FLEXIBLE,
            Self::BellGarland => &BELL_GARLAND,
            Self::SellP => &SELL_P,
            Self::Mazzucchi => &MAZZUCCHI,
        }
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Where a matrix comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The collection, as it is.
    Collection,
    /// The collection, where it is complex; its real parts are kept, and its pattern with them.
    RealParts,
    /// Its definition: every place of the matrix is stored. The collection does not have it.
    Dense,
}

/// A matrix of the corpus. The numbers are those of the collection's index; a source may have
/// counted otherwise, explicit zeros above all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Its group in the collection.
    pub group: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// Rows.
    pub nrows: usize,
    /// Columns.
    pub ncols: usize,
    /// Entries that are not 0, in both triangles.
    pub nonzeros: usize,
    /// Entries that are stored though they are 0.
    pub explicit_zeros: usize,
    /// Where it comes from.
    pub origin: Origin,
}

impl Matrix {
    /// The lists that it is in.
    pub fn lists(&self) -> impl Iterator<Item = List> {
        List::ALL.into_iter().filter(|list| list.members().contains(&self.name))
    }

    /// The part of the corpus that it belongs to: `flexible`, matrices of at most 1,024 rows of
    /// which batches are made, or `single`.
    pub fn part(&self) -> &'static str {
        if FLEXIBLE.contains(&self.name) { "flexible" } else { "single" }
    }

    /// Group and name.
    pub fn key(&self) -> String {
        format!("{}/{}", self.group, self.name)
    }

    /// The address of its archive below that of the collection.
    pub fn address(&self, base: &str) -> String {
        format!("{}/MM/{}/{}.tar.gz", base.trim_end_matches('/'), self.group, self.name)
    }

    /// Stored entries, in both triangles.
    pub fn entries(&self) -> usize {
        self.nonzeros + self.explicit_zeros
    }
}

/// What names ask for: lists, matrices by name or by `GROUP/NAME`; all matrices when there is none.
/// Each matrix once, in the order of the catalogue.
///
/// # Errors
/// [`CorpusError::Name`] for a name that is neither.
pub fn select<S: AsRef<str>>(names: &[S]) -> Result<Vec<&'static Matrix>, CorpusError> {
    let mut wanted = vec![names.is_empty(); MATRICES.len()];
    for name in names {
        let name = name.as_ref();
        let list = name.parse::<List>().ok();
        let mut found = false;
        for (matrix, wanted) in MATRICES.iter().zip(&mut wanted) {
            let is_meant = match list {
                Some(list) => list.members().contains(&matrix.name),
                None => matrix.name == name || matrix.key() == name,
            };
            *wanted |= is_meant;
            found |= is_meant;
        }
        if !found {
            return Err(CorpusError::Name { found: name.to_owned() });
        }
    }
    Ok(MATRICES
        .iter()
        .zip(wanted)
        .filter_map(|(matrix, wanted)| wanted.then_some(matrix))
        .collect())
}

impl FromStr for List {
    type Err = CorpusError;

    fn from_str(text: &str) -> Result<Self, CorpusError> {
        let found = Self::ALL.into_iter().find(|list| list.name() == text);
        found.ok_or_else(|| CorpusError::Name { found: text.to_owned() })
    }
}

const FLEXIBLE: [&str; 32] = [
    "pivtol",
    "tomography",
    "west0989",
    "G45",
    "GD02_a",
    "Si2",
    "ck656",
    "ex25",
    "jgl011",
    "lock_700",
    "fs_541_1",
    "mbeacxc",
    "dwt_918",
    "mcfe",
    "dwt_607",
    "rbsa480",
    "gr_30_30",
    "bcsstk34",
    "cage8",
    "ex27",
    "can_838",
    "bcsstm34",
    "USAir97",
    "bp_1600",
    "rotor2",
    "msc00726",
    "nos3",
    "G2",
    "dwt_992",
    "ex2",
    "tols90",
    "bcsstk02",
];

const BELL_GARLAND: [&str; 14] = [
    "dense2",
    "pdb1HYS",
    "consph",
    "cant",
    "pwtk",
    "rma10",
    "conf5_4-8x8-05",
    "shipsec1",
    "mac_econ_fwd500",
    "mc2depi",
    "cop20k_A",
    "scircuit",
    "webbase-1M",
    "rail4284",
];

const SELL_P: [&str; 20] = [
    "audikw_1",
    "bone010",
    "boneS10",
    "bmw3_2",
    "bmwcra_1",
    "cage10",
    "cant",
    "crankseg_2",
    "Cube_Coup_dt0",
    "dielFilterV2real",
    "F1",
    "Fault_639",
    "Hook_1498",
    "inline_1",
    "ldoor",
    "m_t1",
    "ML_Geer",
    "pwtk",
    "shipsec1",
    "Trefethen_20000",
];

const MAZZUCCHI: [&str; 15] = [
    "pkustk14",
    "cage14",
    "rajat31",
    "bcsstk13",
    "trans5",
    "af23560",
    "cont11_l",
    "sme3Db",
    "TSOPF_RS_b2383",
    "helm2d03",
    "great-britain_osm",
    "webbase-1M",
    "neos3",
    "ins2",
    "torso1",
];

/// All matrices: group, name, rows, columns, nonzeros, explicit zeros.
pub static MATRICES: [Matrix; 77] = [
    square("Bai", "ck656", 656, 3_884, 0),
    square("Bai", "rbsa480", 480, 17_088, 0),
    square("Bai", "tols90", 90, 1_746, 0),
    square("Boeing", "bcsstk34", 588, 21_418, 0),
    square("Boeing", "bcsstm34", 588, 24_270, 0),
    square("Boeing", "msc00726", 726, 34_518, 0),
    square("FIDAP", "ex2", 441, 26_839, 0),
    square("FIDAP", "ex25", 848, 24_369, 243),
    square("FIDAP", "ex27", 974, 37_652, 3_130),
    square("Gset", "G2", 800, 38_352, 0),
    square("Gset", "G45", 1_000, 19_980, 0),
    square("HB", "bcsstk02", 66, 4_356, 0),
    square("HB", "bp_1600", 822, 4_841, 0),
    square("HB", "can_838", 838, 10_010, 0),
    square("HB", "dwt_607", 607, 5_131, 0),
    square("HB", "dwt_918", 918, 7_384, 0),
    square("HB", "dwt_992", 992, 16_744, 0),
    square("HB", "fs_541_1", 541, 4_282, 3),
    square("HB", "gr_30_30", 900, 7_744, 0),
    square("HB", "jgl011", 11, 76, 0),
    square("HB", "lock_700", 700, 22_175, 0),
    square("HB", "mbeacxc", 496, 49_920, 0),
    square("HB", "mcfe", 765, 24_382, 0),
    square("HB", "nos3", 960, 15_844, 0),
    square("HB", "west0989", 989, 3_518, 19),
    square("MathWorks", "pivtol", 102, 306, 0),
    square("MathWorks", "tomography", 500, 28_726, 0),
    square("Morandini", "rotor2", 791, 10_685, 0),
    square("Pajek", "GD02_a", 23, 87, 0),
    square("Pajek", "USAir97", 332, 4_252, 0),
    square("PARSEC", "Si2", 769, 17_801, 0),
    square("vanHeukelum", "cage8", 1_015, 11_003, 0),
    square("Andrianov", "ins2", 309_412, 2_751_484, 0),
    square("Bai", "af23560", 23_560, 460_598, 23_658),
    square("Boeing", "pwtk", 217_918, 11_524_432, 109_992),
    square("Bova", "rma10", 46_835, 2_329_092, 44_909),
    square("Chen", "pkustk14", 151_926, 14_836_504, 0),
    square("DIMACS10", "great-britain_osm", 7_733_822, 16_313_034, 0),
    square("DNVS", "m_t1", 97_578, 9_753_570, 0),
    square("DNVS", "shipsec1", 140_874, 3_568_176, 4_245_228),
    square("Dziekonski", "dielFilterV2real", 1_157_456, 48_538_952, 0),
    square("FEMLAB", "sme3Db", 29_067, 2_081_063, 0),
    square("GHS_indef", "bmw3_2", 227_362, 11_288_630, 0),
    square("GHS_indef", "helm2d03", 392_257, 2_741_935, 0),
    square("GHS_psdef", "audikw_1", 943_695, 77_651_847, 0),
    square("GHS_psdef", "bmwcra_1", 148_770, 10_641_602, 2_400),
    square("GHS_psdef", "crankseg_2", 63_838, 14_148_858, 0),
    square("GHS_psdef", "inline_1", 503_712, 36_816_170, 172),
    square("GHS_psdef", "ldoor", 952_203, 42_493_817, 4_028_658),
    square("HB", "bcsstk13", 2_003, 83_883, 0),
    square("Hamm", "scircuit", 170_998, 958_936, 0),
    square("IBM_EDA", "trans5", 116_835, 749_800, 16_596),
    square("JGD_Trefethen", "Trefethen_20000", 20_000, 554_466, 0),
    square("Janna", "Cube_Coup_dt0", 2_164_760, 124_406_070, 2_800_074),
    square("Janna", "Fault_639", 638_802, 27_245_944, 1_368_620),
    square("Janna", "Hook_1498", 1_498_023, 59_374_451, 1_542_994),
    square("Janna", "ML_Geer", 1_504_002, 110_686_677, 193_295),
    square("Koutsovasilis", "F1", 343_791, 26_837_113, 0),
    rectangular("Mittelmann", "cont11_l", 1_468_599, 1_961_394, 5_382_999),
    rectangular("Mittelmann", "neos3", 512_209, 518_832, 2_055_024),
    rectangular("Mittelmann", "rail4284", 4_284, 1_096_894, 11_284_032),
    square("Norris", "torso1", 116_158, 8_516_500, 0),
    square("Oberwolfach", "bone010", 986_703, 47_851_783, 23_814_542),
    square("Oberwolfach", "boneS10", 914_898, 40_878_708, 14_589_714),
    Matrix { origin: Origin::RealParts, ..square("QCD", "conf5_4-8x8-05", 49_152, 1_916_928, 0) },
    square("Rajat", "rajat31", 4_690_002, 20_316_253, 0),
    square("TSOPF", "TSOPF_RS_b2383", 38_120, 16_171_169, 0),
    square("Williams", "cant", 62_451, 4_007_383, 0),
    square("Williams", "consph", 83_334, 6_010_480, 0),
    square("Williams", "cop20k_A", 121_192, 2_624_331, 0),
    square("Williams", "mac_econ_fwd500", 206_500, 1_273_389, 0),
    square("Williams", "mc2depi", 525_825, 2_100_225, 0),
    square("Williams", "pdb1HYS", 36_417, 4_344_765, 0),
    square("Williams", "webbase-1M", 1_000_005, 3_105_536, 0),
    Matrix { origin: Origin::Dense, ..square("definition", "dense2", 2_000, 4_000_000, 0) },
    square("vanHeukelum", "cage10", 11_397, 150_645, 0),
    square("vanHeukelum", "cage14", 1_505_785, 27_130_349, 0),
];

const fn square(
    group: &'static str,
    name: &'static str,
    order: usize,
    nonzeros: usize,
    explicit_zeros: usize,
) -> Matrix {
    let origin = Origin::Collection;
    Matrix { group, name, nrows: order, ncols: order, nonzeros, explicit_zeros, origin }
}

const fn rectangular(
    group: &'static str,
    name: &'static str,
    nrows: usize,
    ncols: usize,
    nonzeros: usize,
) -> Matrix {
    Matrix { ncols, ..square(group, name, nrows, nonzeros, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_is_whole_and_every_matrix_is_in_one() {
        let counts = List::ALL.map(|list| select(&[list.name()]).unwrap().len());

        assert_eq!(counts, [32, 14, 20, 15]);
        assert!(MATRICES.iter().all(|matrix| matrix.lists().count() > 0));
        let shared: Vec<&str> =
            MATRICES.iter().filter(|m| m.lists().count() > 1).map(|m| m.name).collect();
        assert_eq!(shared, ["pwtk", "shipsec1", "cant", "webbase-1M"]);
    }

    #[test]
    fn names_of_files_differ_also_where_case_does_not_count() {
        let mut names: Vec<String> = MATRICES.iter().map(|m| m.name.to_lowercase()).collect();
        names.sort();
        names.dedup();

        assert_eq!(names.len(), MATRICES.len());
    }

    #[test]
    fn batches_are_made_of_small_square_matrices() {
        for matrix in MATRICES.iter().filter(|matrix| matrix.part() == "flexible") {
            assert!(matrix.nrows == matrix.ncols && matrix.nrows <= 1_024, "{}", matrix.name);
        }
    }

    #[test]
    fn names_choose_each_matrix_once_and_unknown_ones_are_refused() {
        let chosen = select(&["cant", "HB/bcsstk13", "Williams/cant"]).unwrap();

        let names: Vec<&str> = chosen.iter().map(|matrix| matrix.name).collect();
        assert_eq!(names, ["bcsstk13", "cant"]);
        assert_eq!(select::<&str>(&[]).unwrap().len(), MATRICES.len());
        match select(&["bell-garland", "HB/cant"]) {
            Err(CorpusError::Name { found }) => assert_eq!(found, "HB/cant"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn addresses_have_the_form_of_the_collection() {
        let cant = select(&["cant"]).unwrap()[0];

        assert_eq!(cant.address("http://a/b/"), "http://a/b/MM/Williams/cant.tar.gz");
    }
}
