pub(crate) mod deeper;
