//! Methods selected by name: the same names for every dual, and errors for unused parameters.

use std::ops::ControlFlow;

use super::super::common::margin::Case;
use dualgap::interrupt::Interrupt;
use dualgap::multiclass::{MulticlassFit, MulticlassMethod, fit};
use dualgap::solver::{Choices, Method, STEPS, Sampling, Target};
use dualgap::structured::{StructuredChoices, StructuredMethod};

fn error_message(choices: &Choices<'_>) -> String {
    Method::parse(choices).unwrap_err().to_string()
}

#[test]
fn every_method_accepts_only_its_own_steps() {
    let own: [(&str, &[&str]); 5] = [
        ("block-frank-wolfe", &["frank-wolfe", "away", "pairwise"]),
        ("frank-wolfe", &["frank-wolfe", "scheduled"]),
        ("away-frank-wolfe", &["away", "pairwise"]),
        ("projected-gradient", &[]),
        ("subgradient", &[]),
    ];
    assert!(own.iter().map(|own| own.0).eq(Method::REGISTRY.iter().map(|known| known.0)));
    for (solver, steps) in own {
        let plain = Method::parse(&Choices::of(solver)).unwrap();
        for step in STEPS {
            let chosen = Choices { step: Some(step), ..Choices::of(solver) };
            assert_eq!(Method::parse(&chosen).is_ok(), steps.contains(step), "{solver} {step}");
        }
        if let Some(first) = steps.first() {
            let chosen = Choices { step: Some(first), ..Choices::of(solver) };
            assert_eq!(Method::parse(&chosen).unwrap(), plain);
            let unknown = Choices { step: Some("line-search"), ..Choices::of(solver) };
            let known = steps.join(", ");
            let expected =
                format!("step: solver {solver:?} has no step \"line-search\"; use {known}");
            assert_eq!(error_message(&unknown), expected);
        }
    }
    let wrong = Choices { step: Some("pairwise"), ..Choices::of("frank-wolfe") };
    let expected =
        "step: solver \"frank-wolfe\" has no step \"pairwise\"; use frank-wolfe, scheduled";
    assert_eq!(error_message(&wrong), expected);
    assert!(error_message(&Choices::of("newton")).starts_with("solver: unknown name \"newton\""));
}

#[test]
fn errors_name_a_parameter_that_the_method_does_not_use() {
    let uses: [(&str, &[&str]); 5] = [
        ("block-frank-wolfe", &["sampling", "cache", "averaging"]),
        ("frank-wolfe", &[]),
        ("away-frank-wolfe", &["subsample"]),
        ("projected-gradient", &[]),
        ("subgradient", &["averaging"]),
    ];
    for (solver, used) in uses {
        let plain = Choices::of(solver);
        for (name, _) in Sampling::NAMES {
            let choices = Choices { sampling: name, ..plain };
            let default = *name == "permutation";
            assert_eq!(Method::parse(&choices).is_ok(), default || used.contains(&"sampling"));
        }
        for (name, choices) in [
            ("sampling", Choices { sampling: "gap", ..plain }),
            ("cache", Choices { cache: true, ..plain }),
            ("averaging", Choices { averaging: true, ..plain }),
            ("subsample", Choices { subsample: 0.5, ..plain }),
        ] {
            if used.contains(&name) {
                assert!(Method::parse(&choices).is_ok(), "{solver} {name}");
            } else {
                let expected = format!("{name}: solver={solver:?} does not use it");
                assert_eq!(error_message(&choices), expected);
            }
        }
    }
    for subsample in [0.0, 1.5, f64::NAN] {
        let choices = Choices { subsample, ..Choices::of("away-frank-wolfe") };
        assert!(error_message(&choices).starts_with("subsample: "), "{subsample}");
    }
}

#[test]
fn each_problem_lists_its_specific_methods_first() {
    assert_eq!(MulticlassMethod::names()[..3], ["auto", "block-descent", "newton"]);
    for name in MulticlassMethod::names() {
        assert!(MulticlassMethod::parse(&Choices::of(name)).is_ok(), "{name}");
    }
    let step = Choices { step: Some("frank-wolfe"), ..Choices::of("auto") };
    let error = MulticlassMethod::parse(&step).unwrap_err().to_string();
    assert_eq!(error, "step: solver=\"auto\" does not use it");
    let choices = |solver, projection, radius| {
        let common = Choices::of(solver);
        StructuredMethod::parse(&StructuredChoices { common, projection, radius })
    };
    for name in StructuredMethod::names() {
        assert!(choices(name, None, None).is_ok(), "{name}");
    }
    let extragradient = choices("extragradient", Some("entropic"), Some(2.0)).unwrap();
    assert!(extragradient.vertices().is_err() && extragradient.path_options().is_err());
    assert!(choices("block-frank-wolfe", None, None).unwrap().path_options().is_ok());
    assert!(choices("frank-wolfe", None, None).unwrap().path_options().is_err());
    for (projection, radius, name) in
        [(Some("entropic"), None, "projection"), (None, Some(1.0), "radius")]
    {
        let error = choices("frank-wolfe", projection, radius).unwrap_err().to_string();
        assert_eq!(error, format!("{name}: solver=\"frank-wolfe\" does not use it"));
    }
    assert!(choices("extragradient", None, Some(-1.0)).is_err());
}

fn fit_by_name(case: &Case, solver: &str, step: Option<&str>) -> dualgap::Result<MulticlassFit> {
    let method = MulticlassMethod::parse(&Choices { step, ..Choices::of(solver) })?;
    let mut problem = case.problem(case.data(), method.order());
    let target = Target { tol: 1e-3, max_epochs: 3000 };
    let go_on = &mut |_: &_| ControlFlow::Continue(());
    fit(&mut problem, method, target, true, None, &Interrupt::default(), go_on)
}

#[test]
fn every_method_fits_a_multi_category_problem() {
    let case = Case { lambda: 0.3, ..Case::random(11, "top-k", 30, 3, 4) };
    let best = fit_by_name(&case, "auto", None).unwrap().trace.certificate.unwrap();
    for solver in MulticlassMethod::names() {
        let fitted = fit_by_name(&case, solver, None).unwrap();
        let end = fitted.trace.certificate.unwrap();
        assert!(end.gap() <= 5e-3 * fitted.null_objective, "{solver}: {end:?}");
        assert!(end.dual <= best.primal + 1e-12 && end.primal >= best.dual - 1e-12, "{solver}");
    }
    let smoothed = Case { smoothing: 0.1, ..case };
    let error = fit_by_name(&smoothed, "away-frank-wolfe", None).unwrap_err().to_string();
    assert!(error.starts_with("smoothing: "), "{error}");
}

#[test]
fn a_warm_start_from_another_method_is_rejected() {
    let case = Case::random(2, "max-hinge", 20, 3, 4);
    let end = fit_by_name(&case, "frank-wolfe", None).unwrap().end;
    for solver in ["auto", "block-frank-wolfe", "subgradient", "away-frank-wolfe"] {
        let method = MulticlassMethod::parse(&Choices::of(solver)).unwrap();
        let mut problem = case.problem(case.data(), method.order());
        let (target, start) = (Target { tol: 1e-3, max_epochs: 5 }, Some(end.clone()));
        let go_on = &mut |_: &_| ControlFlow::Continue(());
        let result = fit(&mut problem, method, target, true, start, &Interrupt::default(), go_on);
        assert!(result.unwrap_err().to_string().starts_with("warm_start: "), "{solver}");
    }
}
