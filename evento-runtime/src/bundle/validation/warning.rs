use std::collections::BTreeSet;

use evento_core::{CheckpointMode, ComponentDescriptor, RetryOption};

use super::{component_name, executor::named, handler_name, place};
use crate::{
    ConsumerExecutor, ExecutorKind,
    bundle::{BundleBuilder, prepared::mode_of},
};

/// What a bundle is started with in spite of, and says so.
pub(super) fn warnings(
    builder: &BundleBuilder,
    components: &[ComponentDescriptor],
    executors: &[ConsumerExecutor],
) -> Vec<String> {
    let in_use: BTreeSet<_> = named(components).map(|(.., name)| name).collect();
    let unused = executors.iter().filter(|executor| !in_use.contains(executor.name())).map(unused);
    let on_start = components.iter().filter(|component| mode_of(builder, component) == CheckpointMode::OnStart);
    unused
        .chain(retry_defaulted(components))
        .chain(on_start.filter_map(|component| may_lose(component, executors)))
        .collect()
}

fn unused(executor: &ConsumerExecutor) -> String {
    let place = place(executor.location());
    format!("executor `{}` ({place}) is named by no handler; take it out, or name it in a handler", executor.name())
}

fn retry_defaulted(components: &[ComponentDescriptor]) -> impl Iterator<Item = String> {
    named(components).filter(|(_, handler, _)| handler.retry == RetryOption::Unset).map(|(component, handler, name)| {
        format!(
            "{} runs under executor `{name}` without `retry`: one attempt, then the dead event queue; write `retry = 0` \
             to mean that, or the number of retries",
            handler_name(component, handler)
        )
    })
}

/// How much a crash can leave unhandled, of a component with handlers under an executor.
fn may_lose(component: &ComponentDescriptor, executors: &[ConsumerExecutor]) -> Option<String> {
    let names: BTreeSet<_> = named(std::slice::from_ref(component)).map(|(.., name)| name).collect();
    let named: Vec<_> = executors.iter().filter(|executor| names.contains(executor.name())).collect();
    if named.is_empty() {
        return None;
    }
    let bound = named.iter().fold(0_usize, |sum, executor| sum.saturating_add(executor.capacity()));
    let each: Vec<_> = named.iter().map(|executor| format!("`{}` {}", executor.name(), executor.capacity())).collect();
    let order = match named.iter().any(|executor| executor.kind() == ExecutorKind::Partitioned) {
        true => ", and later events of the same aggregates go on without them",
        false => "",
    };
    Some(format!(
        "{} ({}) records starts: after a crash up to {bound} events ({}) stay unhandled{order}; write `checkpoint = \
         \"watermark\"` to lose none",
        component_name(component),
        component.location,
        each.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::fixture::{Inline, Parallel, shop};

    fn executors() -> Vec<ConsumerExecutor> {
        vec![
            ConsumerExecutor::partitioned("read-model", 32),
            ConsumerExecutor::tasks("audit", 8),
            ConsumerExecutor::tasks("mail", 4),
        ]
    }

    #[test]
    fn an_idle_executor_a_defaulted_retry_and_a_bound_of_loss_are_told_apart() {
        let told = warnings(
            &shop(),
            &[ComponentDescriptor::of::<Inline>(), ComponentDescriptor::of::<Parallel>()],
            &executors(),
        );
        assert_eq!(told.len(), 3, "{told:#?}");
        assert!(told[0].contains("executor `mail`") && told[0].contains("named by no handler"), "{told:#?}");
        assert!(told[1].contains("`on_placed` (src/parallel.rs:5)") && told[1].contains("`retry = 0`"), "{told:#?}");
        assert!(told[2].contains("projector `Parallel`") && told[2].contains("up to 40 events"), "{told:#?}");
        assert!(told[2].contains("`read-model` 32, `audit` 8") && told[2].contains("go on without them"), "{told:#?}");
    }

    #[test]
    fn under_a_watermark_nothing_is_lost_and_nothing_is_said() {
        let builder = shop().checkpoint_mode(CheckpointMode::Watermark);
        let told = warnings(&builder, &[ComponentDescriptor::of::<Parallel>()], &executors()[..2]);
        assert_eq!(told.len(), 1, "{told:#?}");
    }

    #[test]
    fn the_settings_mode_goes_before_the_override_the_attribute_the_bundle_and_the_default() {
        use CheckpointMode::{OnStart, Watermark};
        let parallel = ComponentDescriptor::of::<Parallel>();
        let marked = ComponentDescriptor { checkpoint: Some(OnStart), ..parallel };
        assert_eq!(mode_of(&shop(), &ComponentDescriptor::of::<Inline>()), Watermark);
        assert_eq!(mode_of(&shop(), &parallel), OnStart);
        let bundle = || shop().checkpoint_mode(Watermark);
        assert_eq!(mode_of(&bundle(), &parallel), Watermark);
        assert_eq!(mode_of(&bundle(), &marked), OnStart);
        let overridden = || bundle().component_checkpoint_mode::<Parallel>(Watermark);
        assert_eq!(mode_of(&overridden(), &marked), Watermark);
        let mut settings = crate::Settings::default();
        settings.components.entry("Parallel".into()).or_default().checkpoint = Some(OnStart);
        assert_eq!(mode_of(&overridden().settings(settings), &marked), OnStart);
    }
}
