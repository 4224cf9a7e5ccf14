use std::collections::HashMap;

/// Which handler takes which event, by the event's name.
#[derive(Clone, Debug)]
pub(crate) enum Routes {
    /// So few that comparing them one by one is faster than hashing.
    Few(Vec<(String, usize)>),
    Many(HashMap<String, usize>),
}

/// How many are few.
const FEW: usize = 8;

impl Routes {
    pub(crate) fn get(&self, name: &str) -> Option<usize> {
        match self {
            Self::Few(routes) => routes.iter().find(|(known, _)| known == name).map(|(_, handler)| *handler),
            Self::Many(routes) => routes.get(name).copied(),
        }
    }
}

impl FromIterator<(String, usize)> for Routes {
    fn from_iter<I: IntoIterator<Item = (String, usize)>>(routes: I) -> Self {
        let routes: Vec<_> = routes.into_iter().collect();
        if routes.len() <= FEW { Self::Few(routes) } else { Self::Many(routes.into_iter().collect()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_finds_its_handler_among_few_and_among_many() {
        for count in [1, FEW, FEW + 1, 100] {
            let routes: Routes = (0..count).map(|handler| (format!("event-{handler}"), handler)).collect();
            assert_eq!(routes.get(&format!("event-{}", count - 1)), Some(count - 1));
            assert_eq!(routes.get("event"), None);
        }
    }
}
