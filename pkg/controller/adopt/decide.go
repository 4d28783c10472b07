package adopt

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/profile/formats"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Result is what the labels of a node say.
type Result struct {
	// Problem is why the labels cannot be followed; its Reason is empty if they can. The GPUNode
	// then stays as it is, and Profile is the name that was asked for.
	Problem Problem
	// Overridden is which label does not count, and why.
	Overridden state.Overridden

	// reports are the labels that report progress.
	reports []report
	// profile is what spec.profileName of the GPUNode should be, and made the content of that
	// PartitionProfile if it is made from a configuration.
	profile string
	made    *v1beta1.PartitionProfileSpec
	// there is the PartitionProfile that should have this content, nil: it does not exist.
	there *v1beta1.PartitionProfile
	// from is the text of the annotation, empty: labels say nothing.
	from string
	// held: a label keeps the node as it is.
	held bool
}

// Problem is why labels cannot be followed.
type Problem struct{ Reason, Profile, Message string }

// decide finds out what the labels of a node say. planned reports whether a PartitionPlan selects the
// node.
func (a *Adopter) decide(ctx context.Context, live bool, g *v1beta1.GPUNode, node *corev1.Node, planned bool) (*Result, error) {
	r := &Result{reports: a.reports(node.Labels)}
	before := g.Annotations[names.AnnotationProfileFrom]
	all, held := a.read(node.Labels)
	if rollout.ControlPlane(node) {
		r.Overridden, r.profile = ignored(all, g.Spec.ProfileName), g.Spec.ProfileName
		return r, nil
	}
	if held != "" {
		r.held, r.from, r.profile = true, held, g.Spec.ProfileName
		return r, nil
	}
	ours := before != "" && g.Spec.ProfileName == g.Annotations[names.AnnotationProfileSet]
	gone := len(all) == 0 && !planned && ours
	if gone {
		all = a.removed(before)
	}
	var profile *name
	if len(all) > 0 {
		profile = all[0]
		r.Overridden = disagree(all)
		for i := range r.reports {
			r.reports[i].follow(profile, all)
		}
	}
	var sharing *formats.Profile
	// A person's choice has precedence over the device plugin's configuration alone.
	if profile == nil && !planned && (g.Spec.ProfileName == "" || ours) || profile != nil && profile.shared {
		var problem string
		var err error
		sharing, problem, err = a.configMaps.sharing(ctx, live, node.Labels)
		if err != nil {
			return nil, err
		}
		if problem != "" {
			r.Problem = Problem{Reason: names.ReasonConfigMapInvalid, Profile: node.Labels[names.LabelDevicePluginConfig], Message: problem}
			return r, nil
		}
	}
	if profile == nil && sharing == nil {
		r.profile = g.Spec.ProfileName
		if ours {
			r.profile = ""
		}
		return r, nil
	}
	err := a.find(ctx, live, r, profile, sharing)
	if gone && r.Problem.Reason != "" {
		// Nobody asks for it any more, so the node keeps what it has.
		r.Problem, r.from, r.profile = Problem{}, before, g.Spec.ProfileName
	}
	return r, err
}

// find finds the profile that labels name.
func (a *Adopter) find(ctx context.Context, live bool, r *Result, profile *name, sharing *formats.Profile) error {
	var base *formats.Profile
	if profile != nil {
		var err error
		if base, err = a.base(ctx, live, r, profile); err != nil || r.Problem.Reason != "" {
			return err
		}
	}
	made, config := base, ""
	if sharing != nil {
		made, config = sharing, sharing.Original
		if base == nil {
			// Of a node without a label for it, the profile for all nodes says how it is partitioned.
			there, err := a.profileNamed(ctx, live, names.DefaultProfile)
			if err != nil {
				return err
			}
			if there != nil {
				base = &formats.Profile{Spec: there.Spec}
			}
		}
		if base != nil {
			together := formats.Together(base, sharing)
			made = &together
			if err := together.Err; err != nil {
				r.Problem = Problem{Reason: names.ReasonConfigMapInvalid, Profile: made.Original, Message: err.Error()}
				return nil //nolint:nilerr // it is the problem of the labels
			}
		}
	}
	object, err := objectOf(profile, config)
	if err != nil {
		r.Problem = Problem{Reason: names.ReasonConfigMapInvalid, Profile: made.Original, Message: err.Error()}
		return nil //nolint:nilerr // it is the problem of the labels
	}
	r.profile, r.from = object, record(profile, config)
	if made.Original == "" {
		return nil // It is somebody's own PartitionProfile.
	}
	r.made = made.Spec.DeepCopy()
	r.made.Default()
	return a.taken(ctx, live, r)
}

// taken finds out whether the name of a profile is taken by another one.
func (a *Adopter) taken(ctx context.Context, live bool, r *Result) error {
	there, err := a.profileNamed(ctx, live, r.profile)
	if r.there = there; err != nil || there == nil || there.Labels[names.LabelCreatedFrom] == names.CreatedFromConfigMap {
		return err
	}
	r.Problem = Problem{Reason: names.ReasonConfigMapInvalid, Profile: r.profile, Message: fmt.Sprintf(
		"PartitionProfile %s exists without the label %s=%s, so it is not replaced: rename it or delete it", r.profile, names.LabelCreatedFrom, names.CreatedFromConfigMap)}
	return nil
}

// base returns the profile that a label names. One that is not made from a configuration has no Original.
func (a *Adopter) base(ctx context.Context, live bool, r *Result, n *name) (*formats.Profile, error) {
	object, err := n.object()
	if err != nil {
		r.Problem = Problem{names.ReasonProfileNotFound, n.value, fmt.Sprintf("the node's label %s: %v", n, err)}
		return nil, nil
	}
	if n.configMap != (ConfigMap{}) {
		found, others, problem, err := a.configMaps.find(ctx, live, n)
		switch {
		case err != nil:
			return nil, err
		case problem != "":
			r.Problem = Problem{names.ReasonConfigMapInvalid, n.value, fmt.Sprintf("the node's label %s is %s, which cannot be used: %s", n.label, n.value, problem)}
			return nil, nil
		case found == nil:
			found = n.brought()
		}
		if found == nil {
			r.Problem = Problem{names.ReasonProfileNotFound, n.value, fmt.Sprintf(
				"the node's label %s names in key %s of ConfigMap %s/%s the configuration %s, which does not exist; existing profiles: %s",
				n.label, n.configMap.Key, n.configMap.Namespace, n.configMap.Name, n.value, cmp.Or(strings.Join(others, ", "), "none"))}
			return nil, nil
		}
		return &formats.Profile{Name: object, Original: n.value, Spec: found.Spec}, nil
	}
	there, err := a.profileNamed(ctx, live, object)
	if err != nil {
		return nil, err
	}
	if there != nil && there.Labels[names.LabelCreatedFrom] != names.CreatedFromConfigMap {
		return &formats.Profile{Name: object, Spec: there.Spec}, nil
	}
	if found := n.brought(); found != nil {
		return &formats.Profile{Name: object, Original: n.value, Spec: found.Spec}, nil
	}
	// The GPUNode names it anyway, and says that it does not exist.
	return &formats.Profile{Name: object}, nil
}

// profileNamed returns a PartitionProfile, or nil if there is none of this name.
func (a *Adopter) profileNamed(ctx context.Context, live bool, profile string) (*v1beta1.PartitionProfile, error) {
	var from client.Reader = a.Client
	if live {
		from = a.Reader
	}
	var p v1beta1.PartitionProfile
	if err := from.Get(ctx, client.ObjectKey{Name: profile}, &p); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read PartitionProfile %s: %w", profile, err)
	}
	return &p, nil
}

// brought returns the profile that a project has for a value of its label, or nil if it has none.
func (n *name) brought() *formats.Profile {
	var p formats.Profile
	switch n.project {
	case Kaiwo:
		var ok bool
		if p, ok = formats.KaiwoDefault(n.value); !ok {
			return nil
		}
	case Nos:
		if p = formats.NosProfile(n.value); p.Err != nil {
			return nil
		}
	default:
		return nil
	}
	return &p
}

// disagree says which labels do not count because another has precedence.
func disagree(all []*name) state.Overridden {
	var others []string
	for _, n := range all[1:] {
		if !n.same(all[0]) {
			others = append(others, "label "+n.String())
		}
	}
	if len(others) == 0 {
		return state.Overridden{}
	}
	what := "one of them"
	if len(others) > 1 {
		what = "all but one of them"
	}
	return state.Overridden{Reason: names.ReasonLabelsDisagree, Message: fmt.Sprintf("the node's label %s has precedence over %s; remove %s",
		all[0], text.List(others, mostNamed), what)}
}

// ignored says which labels of a node of the control plane do not count.
func ignored(all []*name, spec string) state.Overridden {
	var others []string
	for _, n := range all {
		if object, err := n.object(); err != nil || object != spec {
			others = append(others, "label "+n.String())
		}
	}
	if len(others) == 0 {
		return state.Overridden{}
	}
	return state.Overridden{Reason: names.ReasonSpecHolds, Message: fmt.Sprintf("on control plane nodes only spec.profileName of the GPUNode counts, so the %s is ignored; "+
		"set spec.profileName instead", strings.Join(others, " and the "))}
}
