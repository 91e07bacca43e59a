//! Whether a container that has exited runs again: rules of the container, then its own policy, then
//! that of the pod (k8s.io/kubernetes/pkg/api/v1/pod `ContainerShouldRestart`).

use super::{Pod, RestartPolicy, core};

fn own_policy(container: &core::Container) -> Option<RestartPolicy> {
    container.restart_policy.as_deref().map(RestartPolicy::of)
}

/// Whether it runs again after it exited with `code`.
pub fn restarts_after(pod: &Pod, container: &core::Container, code: i32) -> bool {
    let rules = container.restart_policy_rules.iter().flatten();
    let matched = rules.filter_map(|rule| rule.exit_codes.as_ref()).any(|codes| {
        let listed = codes.values.iter().flatten().any(|value| *value == code);
        match codes.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    });
    // The only action there is restarts it.
    matched
        || match own_policy(container).unwrap_or_else(|| pod.restart_policy()) {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => code != 0,
            RestartPolicy::Never => false,
        }
}

/// Whether there is an exit after which it runs again.
pub fn may_restart(pod: &Pod, container: &core::Container) -> bool {
    let has_rules = container.restart_policy_rules.as_ref().is_some_and(|rules| !rules.is_empty());
    has_rules || own_policy(container).unwrap_or_else(|| pod.restart_policy()) != RestartPolicy::Never
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{PodName, PodUid, Source};

    fn pod(policy: &str) -> Pod {
        Pod {
            uid: PodUid::new("u"),
            name: PodName::new("ns", "p"),
            source: Source::File,
            origin: "/m/p.yaml".into(),
            status: None,
            meta: Default::default(),
            spec: core::PodSpec { restart_policy: Some(policy.to_owned()), ..Default::default() },
        }
    }

    fn container(policy: &str, rules: &[(&str, &[i32])]) -> core::Container {
        let rule = |(operator, values): &(&str, &[i32])| core::ContainerRestartRule {
            action: "Restart".to_owned(),
            exit_codes: Some(core::ContainerRestartRuleOnExitCodes {
                operator: (*operator).to_owned(),
                values: Some(values.to_vec()),
            }),
        };
        core::Container {
            restart_policy: Some(policy.to_owned()).filter(|p| !p.is_empty()),
            restart_policy_rules: Some(rules.iter().map(rule).collect()).filter(|r: &Vec<_>| !r.is_empty()),
            ..Default::default()
        }
    }

    #[test]
    fn rules_then_container_then_pod() {
        // Pod's policy, container's policy, rules, then whether it runs again after 0, 1, 42; and ever.
        type Rules = &'static [(&'static str, &'static [i32])];
        let table: &[(&str, &str, Rules, [bool; 3], bool)] = &[
            ("Always", "", &[], [true, true, true], true),
            ("OnFailure", "", &[], [false, true, true], true),
            ("Never", "", &[], [false, false, false], false),
            ("Never", "Always", &[], [true, true, true], true),
            ("Always", "Never", &[], [false, false, false], false),
            ("Never", "OnFailure", &[], [false, true, true], true),
            ("Always", "Never", &[("In", &[42])], [false, false, true], true),
            ("Never", "Never", &[("NotIn", &[0, 1])], [false, false, true], true),
            ("Never", "Never", &[("In", &[7]), ("In", &[1])], [false, true, false], true),
        ];
        for (policy, own, rules, after, ever) in table {
            let (pod, container) = (pod(policy), container(own, rules));
            let got = [0, 1, 42].map(|code| restarts_after(&pod, &container, code));
            assert_eq!((got, may_restart(&pod, &container)), (*after, *ever), "{policy} {own} {rules:?}");
        }
    }
}
