package state

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
)

func TestWhoSaysWhat(t *testing.T) {
	control := map[string]string{ControlPlaneLabel: ""}
	label := map[string]string{names.LabelProfile: "cpx"}
	both := map[string]string{ControlPlaneLabel: "", names.LabelProfile: "cpx"}
	spec := func(name string) v1alpha1.GPUNodeSpec { return v1alpha1.GPUNodeSpec{Profile: name} }
	for name, tt := range map[string]struct {
		labels   map[string]string
		spec     v1alpha1.GPUNodeSpec
		profiles string // those that there are
		want     string // of which profile; - for none
		source   v1alpha1.Source
		keep     string
		ruler    string
	}{
		"nobody, no default":             {profiles: "cpx", want: "", source: v1alpha1.FromDefault},
		"nobody":                         {profiles: "cpx default", want: "default", source: v1alpha1.FromDefault},
		"the label":                      {labels: label, profiles: "cpx default", want: "cpx", source: v1alpha1.FromLabel},
		"the spec":                       {spec: spec("spx"), profiles: "spx default", want: "spx", source: v1alpha1.FromSpec},
		"both, the same":                 {labels: label, spec: spec("cpx"), profiles: "cpx", want: "cpx", source: v1alpha1.FromLabel},
		"both":                           {labels: label, spec: spec("spx"), profiles: "cpx spx", want: "cpx", source: v1alpha1.FromLabel, ruler: names.ReasonLabelHolds},
		"the label, missing":             {labels: label, spec: spec("spx"), profiles: "spx", want: "-", keep: names.ReasonProfileNotFound, ruler: names.ReasonLabelHolds},
		"the spec, missing":              {spec: spec("spx"), profiles: "default", want: "-", keep: names.ReasonProfileNotFound},
		"disabled":                       {labels: label, spec: v1alpha1.GPUNodeSpec{Enabled: ptr.To(false)}, profiles: "cpx", want: "-", keep: names.ReasonDisabled},
		"enabled":                        {labels: label, spec: v1alpha1.GPUNodeSpec{Enabled: ptr.To(true)}, profiles: "cpx", want: "cpx", source: v1alpha1.FromLabel},
		"control plane":                  {labels: control, profiles: "default", want: "-", keep: names.ReasonControlPlaneNotNamed},
		"control plane, the label":       {labels: both, profiles: "cpx default", want: "-", keep: names.ReasonControlPlaneNotNamed, ruler: names.ReasonSpecHolds},
		"control plane, the spec":        {labels: control, spec: spec("spx"), profiles: "spx", want: "spx", source: v1alpha1.FromSpec},
		"control plane, both":            {labels: both, spec: spec("spx"), profiles: "cpx spx", want: "spx", source: v1alpha1.FromSpec, ruler: names.ReasonSpecHolds},
		"control plane, both, the same":  {labels: both, spec: spec("cpx"), profiles: "cpx", want: "cpx", source: v1alpha1.FromSpec},
		"control plane, the spec misses": {labels: control, spec: spec("spx"), want: "-", keep: names.ReasonProfileNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			n := NamedBy(&v1alpha1.GPUNode{Spec: tt.spec}, tt.labels, nil, nil)
			c := Choose(n, findIn(n, tt.profiles), v1alpha1.SwitchPolicy{})
			assert.Equal(t, tt.keep, c.Keep)
			assert.Equal(t, tt.ruler, c.Overruler)
			assert.Equal(t, tt.ruler != "", c.Overruled != "")
			if tt.want == "-" {
				assert.Nil(t, c.Desired)
				assert.NotEmpty(t, c.Message)
				return
			}
			assert.Equal(t, tt.want, c.Desired.Profile)
			assert.Equal(t, tt.source, c.Desired.Source)
			assert.NotEmpty(t, c.Desired.Hash)
		})
	}
}

// findIn finds what is named among profiles.
func findIn(n Named, profiles string) Found {
	found := Found{Others: strings.Fields(profiles)}
	if slices.Contains(found.Others, n.Profile().Profile) {
		found.Spec = &v1alpha1.PartitionProfileSpec{}
	}
	return found
}

func TestPoliciesHaveDefaults(t *testing.T) {
	p := withDefaults(nil, v1alpha1.SwitchPolicy{})
	assert.Equal(t, v1alpha1.SwitchPolicy{
		DrainDeadline: &metav1.Duration{Duration: 10 * time.Minute}, AfterDeadline: v1alpha1.GiveUp,
		Reboot: v1alpha1.RebootNever, PauseClients: ptr.To(true),
	}, p)

	defaults := v1alpha1.SwitchPolicy{DrainDeadline: &metav1.Duration{Duration: time.Minute}, AfterDeadline: v1alpha1.Force, PauseClients: ptr.To(false)}
	p = withDefaults(&v1alpha1.SwitchPolicy{NodeTaint: true}, defaults)
	assert.Equal(t, time.Minute, p.DrainDeadline.Duration)
	assert.Equal(t, v1alpha1.Force, p.AfterDeadline)
	assert.True(t, p.NodeTaint)
	assert.False(t, *p.PauseClients)

	own := &v1alpha1.SwitchPolicy{DrainDeadline: &metav1.Duration{}, AfterDeadline: v1alpha1.GiveUp, Reboot: v1alpha1.RebootAllowed, PauseClients: ptr.To(true)}
	p = withDefaults(own, defaults)
	assert.Equal(t, *own, p)
	p.DrainDeadline.Duration = time.Hour
	assert.Zero(t, own.DrainDeadline.Duration, "the profile's own stays as it is")
}

// Labels and specs have precedence over plans, and plans over the profile default.
func TestWhatAPlanGives(t *testing.T) {
	given := &Given{Plan: "p", Profile: "cpx", Snapshot: &v1alpha1.ProfileSnapshot{Profile: "cpx", Source: v1alpha1.FromPlan, Plan: "p", Hash: "of the plan"}}
	label := map[string]string{names.LabelProfile: "spx"}
	for name, tt := range map[string]struct {
		labels  map[string]string
		spec    v1alpha1.GPUNodeSpec
		plan    *Given
		source  v1alpha1.Source
		keep    string
		ruler   string
		follows bool
	}{
		"the plan":                  {plan: given, source: v1alpha1.FromPlan, follows: true},
		"the plan has none yet":     {plan: &Given{Plan: "p", Profile: "new"}, keep: names.ReasonProfileNotFound, follows: true},
		"the label":                 {plan: given, labels: label, source: v1alpha1.FromLabel, ruler: names.ReasonPlanOverruled},
		"the label, the same":       {plan: given, labels: map[string]string{names.LabelProfile: "cpx"}, source: v1alpha1.FromLabel},
		"the spec":                  {plan: given, spec: v1alpha1.GPUNodeSpec{Profile: "spx"}, source: v1alpha1.FromSpec, ruler: names.ReasonPlanOverruled},
		"label and spec":            {plan: given, labels: label, spec: v1alpha1.GPUNodeSpec{Profile: "cpx"}, source: v1alpha1.FromLabel, ruler: names.ReasonLabelHolds},
		"disabled":                  {plan: given, spec: v1alpha1.GPUNodeSpec{Enabled: ptr.To(false)}, keep: names.ReasonDisabled},
		"no plan":                   {source: v1alpha1.FromDefault},
		"control plane, by no plan": {labels: map[string]string{ControlPlaneLabel: ""}, keep: names.ReasonControlPlaneNotNamed},
	} {
		t.Run(name, func(t *testing.T) {
			n := NamedBy(&v1alpha1.GPUNode{Spec: tt.spec}, tt.labels, nil, tt.plan)
			c := Choose(n, findIn(n, "cpx spx default"), v1alpha1.SwitchPolicy{})
			assert.Equal(t, tt.keep, c.Keep)
			assert.Equal(t, tt.ruler, c.Overruler)
			assert.Equal(t, tt.follows, n.FollowsPlan())
			if tt.keep == "" {
				assert.Equal(t, tt.source, c.Desired.Source)
			}
			if tt.source == v1alpha1.FromPlan {
				assert.Equal(t, given.Snapshot, c.Desired)
			}
		})
	}
}

// Who waits for a rollout has what it has, by the policy that it has.
func TestWaitForARollout(t *testing.T) {
	old, next := &v1alpha1.ProfileSnapshot{Hash: "old"}, &v1alpha1.ProfileSnapshot{Hash: "next"}
	why := &Pending{Reason: names.ReasonWaitsForPlan}
	c := Choice{Desired: &v1alpha1.ProfileSnapshot{Hash: "new"}}
	c.Wait(&v1alpha1.GPUNodeStatus{Applied: old, Desired: next, Switch: &v1alpha1.Switch{Policy: v1alpha1.SwitchPolicy{NodeTaint: true}}}, why)
	assert.Equal(t, Choice{Desired: old, Pending: why, Policy: v1alpha1.SwitchPolicy{NodeTaint: true}}, c)
	c = Choice{Desired: &v1alpha1.ProfileSnapshot{Hash: "new"}}
	c.Wait(&v1alpha1.GPUNodeStatus{Desired: next}, why)
	assert.Equal(t, next, c.Desired)
}
