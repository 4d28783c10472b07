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
	"github.com/tranche-dev/tranche/api/v1beta1"
)

func TestWhoSaysWhat(t *testing.T) {
	spec := func(name string) v1beta1.GPUNodeSpec { return v1beta1.GPUNodeSpec{ProfileName: name} }
	for name, tt := range map[string]struct {
		controlPlane bool
		spec         v1beta1.GPUNodeSpec
		from         string
		profiles     string // those that there are
		want         string // of which profile; - for none
		source       v1beta1.Source
		keep, says   string
	}{
		"nobody, no default":             {profiles: "cpx", want: "", source: v1beta1.FromNone},
		"nobody":                         {profiles: "cpx default", want: "default", source: v1beta1.FromDefault},
		"the spec":                       {spec: spec("spx"), profiles: "spx default", want: "spx", source: v1beta1.FromSpec},
		"the spec, missing":              {spec: spec("spx"), profiles: "old default", want: "-", keep: names.ReasonProfileNotFound, says: "the GPUNode's spec.profileName names PartitionProfile spx, which does not exist; existing profiles: default, old"},
		"by a label, missing":            {spec: spec("spx"), from: "a=spx", want: "-", keep: names.ReasonProfileNotFound, says: "the node's label a=spx names PartitionProfile spx, which does not exist; existing profiles: none"},
		"by a label":                     {spec: spec("spx"), from: "a=spx", profiles: "spx", want: "spx", source: v1beta1.FromLabel},
		"paused":                         {spec: v1beta1.GPUNodeSpec{ProfileName: "cpx", Paused: true}, profiles: "cpx", want: "-", keep: names.ReasonPaused, says: "spec.paused is true"},
		"paused by a label":              {spec: v1beta1.GPUNodeSpec{Paused: true}, from: "a=false", want: "-", keep: names.ReasonPaused, says: "spec.paused is true (set by the node's label a=false)"},
		"control plane":                  {controlPlane: true, profiles: "default", want: "-", keep: names.ReasonControlPlaneNotNamed, says: "spec.profileName of its GPUNode is not set"},
		"control plane, the spec":        {controlPlane: true, spec: spec("spx"), profiles: "spx", want: "spx", source: v1beta1.FromSpec},
		"control plane, the spec misses": {controlPlane: true, spec: spec("spx"), want: "-", keep: names.ReasonProfileNotFound, says: "spx"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &v1beta1.GPUNode{Spec: tt.spec}
			if tt.from != "" {
				g.Annotations = map[string]string{names.AnnotationProfileFrom: tt.from}
			}
			n := NamedBy(g, tt.controlPlane, nil)
			c := Choose(n, findIn(n, tt.profiles), v1beta1.SwitchPolicy{})
			assert.Equal(t, tt.keep, c.Keep)
			assert.Empty(t, c.Overridden)
			assert.Contains(t, c.Message, tt.says)
			if tt.want == "-" {
				assert.Nil(t, c.Desired)
				assert.NotEmpty(t, c.Message)
				return
			}
			assert.Equal(t, tt.want, c.Desired.ProfileName)
			assert.Equal(t, tt.source, c.Desired.Source)
			assert.NotEmpty(t, c.Desired.Hash)
			assert.Equal(t, []bool{tt.want != "", tt.spec.ProfileName != ""}, []bool{c.Policy.AfterDeadline == v1beta1.Force, c.SetBy != ""}, "by the profile, and who says so")
		})
	}
}

// What labels cannot name changes nothing, and hides no other reason to keep what there is.
func TestRefuse(t *testing.T) {
	c := Choice{Desired: noProfile()}
	c.Refuse(names.ReasonConfigMapInvalid, "a", "b")
	assert.Equal(t, Choice{Keep: names.ReasonConfigMapInvalid, Missing: "a", Message: "b"}, c)
	c.Refuse(names.ReasonProfileNotFound, "c", "d")
	assert.Equal(t, names.ReasonConfigMapInvalid, c.Keep)
}

// findIn finds what is named among profiles.
func findIn(n Named, profiles string) Found {
	found := Found{Others: strings.Fields(profiles)}
	if name, _ := n.Profile(); slices.Contains(found.Others, name) {
		found.Spec = &v1beta1.PartitionProfileSpec{Switch: &v1beta1.SwitchPolicy{AfterDeadline: v1beta1.Force}}
	}
	return found
}

func TestPoliciesHaveDefaults(t *testing.T) {
	p := withDefaults(nil, v1beta1.SwitchPolicy{})
	assert.Equal(t, v1beta1.SwitchPolicy{
		DrainDeadline: &metav1.Duration{Duration: 10 * time.Minute}, AfterDeadline: v1beta1.GiveUp,
		Reboot: v1beta1.RebootNever, NodeTaintEffect: v1beta1.NodeTaintNone, PauseMonitoring: ptr.To(true),
	}, p)

	defaults := v1beta1.SwitchPolicy{DrainDeadline: &metav1.Duration{Duration: time.Minute}, AfterDeadline: v1beta1.Force, PauseMonitoring: ptr.To(false)}
	p = withDefaults(&v1beta1.SwitchPolicy{NodeTaintEffect: v1beta1.NodeTaintNoSchedule}, defaults)
	assert.Equal(t, time.Minute, p.DrainDeadline.Duration)
	assert.Equal(t, v1beta1.Force, p.AfterDeadline)
	assert.Equal(t, v1beta1.NodeTaintNoSchedule, p.NodeTaintEffect)
	assert.False(t, *p.PauseMonitoring)

	own := &v1beta1.SwitchPolicy{DrainDeadline: &metav1.Duration{}, AfterDeadline: v1beta1.GiveUp, Reboot: v1beta1.RebootIfRequired, NodeTaintEffect: v1beta1.NodeTaintNone, PauseMonitoring: ptr.To(true)}
	p = withDefaults(own, defaults)
	assert.Equal(t, *own, p)
	p.DrainDeadline.Duration = time.Hour
	assert.Zero(t, own.DrainDeadline.Duration, "the profile's own stays as it is")
}

// Specs have precedence over plans, and plans over the profile default.
func TestWhatAPlanGives(t *testing.T) {
	given := &Given{Plan: "p", Profile: "cpx", Snapshot: &v1beta1.ProfileSnapshot{ProfileName: "cpx", Source: v1beta1.FromPlan, PlanName: "p", Hash: "of the plan"}}
	for name, tt := range map[string]struct {
		controlPlane bool
		spec         v1beta1.GPUNodeSpec
		plan         *Given
		source       v1beta1.Source
		keep         string
		ruler        string
		follows      bool
	}{
		"the plan":                  {plan: given, source: v1beta1.FromPlan, follows: true},
		"the plan has none yet":     {plan: &Given{Plan: "p", Profile: "new"}, keep: names.ReasonProfileNotFound, follows: true},
		"the spec":                  {plan: given, spec: v1beta1.GPUNodeSpec{ProfileName: "spx"}, source: v1beta1.FromSpec, ruler: names.ReasonPlanOverridden},
		"the spec, the same":        {plan: given, spec: v1beta1.GPUNodeSpec{ProfileName: "cpx"}, source: v1beta1.FromSpec},
		"paused":                    {plan: given, spec: v1beta1.GPUNodeSpec{Paused: true}, keep: names.ReasonPaused},
		"no plan":                   {source: v1beta1.FromDefault},
		"control plane, by no plan": {controlPlane: true, keep: names.ReasonControlPlaneNotNamed},
	} {
		t.Run(name, func(t *testing.T) {
			n := NamedBy(&v1beta1.GPUNode{Spec: tt.spec}, tt.controlPlane, tt.plan)
			c := Choose(n, findIn(n, "cpx spx default"), v1beta1.SwitchPolicy{})
			assert.Equal(t, tt.keep, c.Keep)
			assert.Equal(t, tt.ruler, c.Overridden.Reason)
			assert.Equal(t, tt.follows, n.FollowsPlan())
			if tt.keep == "" {
				assert.Equal(t, tt.source, c.Desired.Source)
			}
			if tt.source == v1beta1.FromPlan {
				assert.Equal(t, given.Snapshot, c.Desired)
				assert.Equal(t, []string{"PartitionPlan p", string(v1beta1.Force)}, []string{c.SetBy, string(c.Policy.AfterDeadline)})
			}
		})
	}
}

// Who waits for a rollout has what it has, by the policy that it has.
func TestWaitForARollout(t *testing.T) {
	old, next := &v1beta1.ProfileSnapshot{Hash: "old"}, &v1beta1.ProfileSnapshot{Hash: "next"}
	why := &Pending{Reason: names.ReasonWaitsForPlan}
	c := Choice{Desired: &v1beta1.ProfileSnapshot{Hash: "new"}}
	c.Wait(&v1beta1.GPUNodeStatus{Applied: old, Desired: next, Switch: &v1beta1.Switch{Policy: v1beta1.SwitchPolicy{NodeTaintEffect: v1beta1.NodeTaintNoSchedule}}}, why)
	assert.Equal(t, Choice{Desired: old, Pending: why, Wanted: "new", Policy: v1beta1.SwitchPolicy{NodeTaintEffect: v1beta1.NodeTaintNoSchedule}}, c)
	c = Choice{Desired: &v1beta1.ProfileSnapshot{Hash: "new"}}
	c.Wait(&v1beta1.GPUNodeStatus{Desired: next}, why)
	assert.Equal(t, next, c.Desired)
}

// A profile keeps the hash that is stored of it, wherever that is.
func TestStoredHashes(t *testing.T) {
	of := func(hash string) *v1beta1.ProfileSnapshot { return &v1beta1.ProfileSnapshot{Hash: hash} }
	s := &v1beta1.GPUNodeStatus{RequestedHash: "a", AdmittedHash: "b", Applied: of("c"), Switch: &v1beta1.Switch{From: *of("d"), To: *of("e")}}
	assert.ElementsMatch(t, []string{"a", "b", "c", "d", "e"}, NamedBy(&v1beta1.GPUNode{Status: *s}, false, nil).hashes)
}
