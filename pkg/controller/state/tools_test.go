package state

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
)

var (
	migConfigs = ConfigMap{"gpu-operator", "mig", "config.yaml"}
	// allTools follows all projects, mig-parted by a ConfigMap.
	allTools = Tools{
		v1alpha1.FromMIGParted: migConfigs, v1alpha1.FromDeviceConfigManager: {}, v1alpha1.FromKaiwo: {}, v1alpha1.FromNos: {},
	}
)

func TestPrecedenceOfLabels(t *testing.T) {
	const (
		ours, mig, dcm, nos, older = names.LabelProfile, names.LabelMIGConfig, names.LabelGPUConfigProfile, names.LabelNos, names.LabelNosOlder
		enabled, kaiwo             = names.LabelKaiwoEnabled, names.LabelKaiwoProfile
	)
	type labels map[string]string
	for name, tt := range map[string]struct {
		labels labels
		spec   v1alpha1.GPUNodeSpec
		tools  Tools
		// there are the profiles that exist, problem is what is wrong with them.
		there, problem string
		want           string // the profile; - for none
		source         v1alpha1.Source
		keep           string
		ruler          string
		says           string
		// reports are the labels whose report says that the node follows them.
		reports []string
	}{
		"nobody follows":            {labels: labels{mig: "all-1g", dcm: "cpx", nos: "mig"}, tools: Tools{}, there: "default", want: "default", source: v1alpha1.FromDefault},
		"mig-parted":                {labels: labels{mig: "All_1g"}, there: "All_1g", want: "All_1g", source: v1alpha1.FromMIGParted, reports: []string{mig}},
		"a PartitionProfile":        {labels: labels{dcm: "CPX_nps1"}, there: "cpx-nps1", want: "cpx-nps1", source: v1alpha1.FromDeviceConfigManager, reports: []string{dcm}},
		"Kaiwo":                     {labels: labels{enabled: "true", kaiwo: "cpx"}, there: "cpx", want: "cpx", source: v1alpha1.FromKaiwo},
		"Kaiwo, not enabled":        {labels: labels{kaiwo: "cpx"}, there: "cpx", want: "", source: v1alpha1.FromDefault},
		"Kaiwo, disabled":           {labels: labels{enabled: "false", kaiwo: "cpx"}, spec: v1alpha1.GPUNodeSpec{Profile: "spx"}, there: "cpx spx", want: "-", keep: names.ReasonDisabled, says: enabled + "=false"},
		"disabled, and ours":        {labels: labels{enabled: "false", ours: "spx"}, there: "cpx spx", want: "spx", source: v1alpha1.FromLabel},
		"disabled, and nos":         {labels: labels{enabled: "false", nos: "mig"}, there: "nos-mig", want: "-", keep: names.ReasonDisabled},
		"nos":                       {labels: labels{nos: "hybrid"}, there: "nos-hybrid", want: "nos-hybrid", source: v1alpha1.FromNos},
		"nos, the older":            {labels: labels{older: "mps"}, there: "nos-mps", want: "nos-mps", source: v1alpha1.FromNos},
		"both of nos":               {labels: labels{nos: "mig", older: "mps"}, there: "nos-mig nos-mps", want: "nos-mig", source: v1alpha1.FromNos, ruler: names.ReasonLabelsDisagree},
		"ours first":                {labels: labels{ours: "a", mig: "a", dcm: "b"}, there: "a b", want: "a", source: v1alpha1.FromLabel, ruler: names.ReasonLabelsDisagree, says: "the node's label tranche.dev/profile=a has precedence over label nvidia.com/mig.config=a, label dcm.amd.com/gpu-config-profile=b; remove all but one of them"},
		"ours, the same":            {labels: labels{ours: "cpx", dcm: "cpx"}, there: "cpx", want: "cpx", source: v1alpha1.FromLabel, reports: []string{dcm}},
		"mig-parted before DCM":     {labels: labels{mig: "a", dcm: "b"}, there: "a b", want: "a", source: v1alpha1.FromMIGParted, ruler: names.ReasonLabelsDisagree, reports: []string{mig}},
		"DCM before Kaiwo":          {labels: labels{dcm: "b", enabled: "true", kaiwo: "cpx"}, there: "b cpx", want: "b", source: v1alpha1.FromDeviceConfigManager, ruler: names.ReasonLabelsDisagree, reports: []string{dcm}},
		"DCM and Kaiwo agree":       {labels: labels{dcm: "cpx", enabled: "true", kaiwo: "cpx"}, there: "cpx", want: "cpx", source: v1alpha1.FromDeviceConfigManager, reports: []string{dcm}},
		"a label before the spec":   {labels: labels{mig: "a"}, spec: v1alpha1.GPUNodeSpec{Profile: "b"}, there: "a b", want: "a", source: v1alpha1.FromMIGParted, ruler: names.ReasonLabelHolds, reports: []string{mig}},
		"unknown":                   {labels: labels{mig: "all-9g"}, there: "all-2g all-1g", want: "-", keep: names.ReasonProfileNotFound, says: "names in key config.yaml of ConfigMap gpu-operator/mig the configuration all-9g, which does not exist; existing profiles: all-1g, all-2g", reports: []string{mig}},
		"a bad ConfigMap":           {labels: labels{mig: "all-1g"}, problem: "ConfigMap gpu-operator/mig does not exist", want: "-", keep: names.ReasonConfigMapInvalid, says: "the node's label nvidia.com/mig.config is all-1g, which cannot be used: ConfigMap gpu-operator/mig does not exist", reports: []string{mig}},
		"GPUNode disabled":          {labels: labels{mig: "a"}, spec: v1alpha1.GPUNodeSpec{Enabled: ptr.To(false)}, there: "a", want: "-", keep: names.ReasonDisabled, reports: []string{mig}},
		"control plane":             {labels: labels{ControlPlaneLabel: "", mig: "a", dcm: "b"}, there: "a", want: "-", keep: names.ReasonControlPlaneNotNamed, ruler: names.ReasonSpecHolds, says: "so the label nvidia.com/mig.config=a and the label dcm.amd.com/gpu-config-profile=b is ignored"},
		"control plane, Kaiwo's no": {labels: labels{ControlPlaneLabel: "", enabled: "false"}, spec: v1alpha1.GPUNodeSpec{Profile: "spx"}, there: "spx", want: "spx", source: v1alpha1.FromSpec},
	} {
		t.Run(name, func(t *testing.T) {
			tools := tt.tools
			if tools == nil {
				tools = allTools
			}
			n := NamedBy(&v1alpha1.GPUNode{Spec: tt.spec}, tt.labels, tools, nil)
			found := findIn(n, tt.there)
			if tt.problem != "" {
				found = Found{Problem: tt.problem}
			}
			c := Choose(n, found, v1alpha1.SwitchPolicy{})
			assert.Equal(t, tt.keep, c.Keep)
			assert.Equal(t, tt.ruler, c.Overruler)
			assert.Contains(t, c.Message+c.Overruled, tt.says)
			var reports []string
			for _, r := range c.Reports {
				if r.follows {
					reports = append(reports, r.tool.labels[0])
				}
			}
			assert.Equal(t, tt.reports, reports)
			if tt.want == "-" {
				assert.Nil(t, c.Desired)
				return
			}
			require.NotNil(t, c.Desired)
			assert.Equal(t, tt.want, c.Desired.Profile)
			assert.Equal(t, tt.source, c.Desired.Source)
		})
	}
}

// As with mig-manager, the removal of the label changes nothing, also in the middle of a switch.
func TestARemovedLabelChangesNothing(t *testing.T) {
	last := &v1alpha1.ProfileSnapshot{Profile: "all-1g", Source: v1alpha1.FromMIGParted, Hash: "h"}
	n := &v1alpha1.GPUNode{Status: v1alpha1.GPUNodeStatus{Desired: last}}
	choose := func(labels map[string]string, tools Tools) Choice {
		named := NamedBy(n, labels, tools, nil)
		return Choose(named, findIn(named, "default other"), v1alpha1.SwitchPolicy{})
	}
	assert.Equal(t, last, choose(nil, allTools).Desired)
	assert.Equal(t, "default", choose(nil, Tools{}).Desired.Profile, "the project is not followed any more")
	assert.Equal(t, "other", choose(map[string]string{names.LabelProfile: "other"}, allTools).Desired.Profile)
	n.Spec.Profile = "other"
	assert.Equal(t, "other", choose(nil, allTools).Desired.Profile)
}

// TestReports: whatever happens to a switch, other projects learn how it ends.
func TestReports(t *testing.T) {
	idle := func(n *v1alpha1.GPUNode) { n.Status.Applied = snapshotOf("new"); follows("new")(n) }
	for name, tt := range map[string]struct {
		node  *v1alpha1.GPUNode
		facts *Facts
		// report is the label's value and its report before; not: the node follows another.
		label, now string
		not        bool
		mig, dcm   string // empty: not written
	}{
		"begins":               {inState(v1alpha1.Idle, follows("old")), after(0), "new", "success", false, "pending", "in-progress"},
		"waits":                {inState(v1alpha1.Waiting), after(time.Second), "new", "pending", false, "pending", "in-progress"},
		"drains":               {inState(v1alpha1.Draining), after(time.Second, held), "new", "pending", false, "pending", "in-progress"},
		"reboots":              {inState(v1alpha1.Rebooting, toReboot), after(time.Second), "new", "pending", false, "rebooting", "in-progress"},
		"rolls back":           {inState(v1alpha1.RollingBack), after(time.Second), "new", "pending", false, "pending", "in-progress"},
		"is done":              {inState(v1alpha1.Idle, idle), after(time.Second), "new", "pending", false, "success", "success"},
		"failed":               {inState(v1alpha1.Failed, doesNotFit), after(time.Second), "new", "pending", false, "failed", "failure"},
		"unknown":              {inState(v1alpha1.Idle, idle), after(time.Second, keeps(names.ReasonProfileNotFound)), "typo", "success", false, "failed", "failure"},
		"disabled":             {inState(v1alpha1.Idle, idle), after(time.Second, keeps(names.ReasonDisabled)), "new", "pending", false, "failed", "failure"},
		"another owner":        {inState(v1alpha1.Idle, idle, owned), after(time.Second), "new", "pending", false, "failed", "failure"},
		"overruled":            {inState(v1alpha1.Idle, idle), after(time.Second), "other", "pending", true, "failed", "failure"},
		"no GPUs":              {inState(v1alpha1.Idle, func(n *v1alpha1.GPUNode) { n.Status.Node = &v1alpha1.NodeReport{} }), after(time.Second), "new", "", false, "failed", "failure"},
		"no report":            {inState(v1alpha1.Idle, func(n *v1alpha1.GPUNode) { n.Status.Node = nil }), after(time.Second), "new", "", false, "", ""},
		"no report any more":   {inState(v1alpha1.Idle, func(n *v1alpha1.GPUNode) { n.Status.Node = nil }), after(time.Second), "new", "pending", false, "failed", "failure"},
		"removed":              {inState(v1alpha1.Idle, idle), after(time.Second), "", "failed", false, "", ""},
		"removed in a switch":  {inState(v1alpha1.Idle, idle), after(time.Second), "", "pending", false, "success", "success"},
		"removed, and another": {inState(v1alpha1.Idle, idle), after(time.Second), "", "pending", true, "failed", "failure"},
	} {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{}
			for source, value := range map[v1alpha1.Source]string{v1alpha1.FromMIGParted: tt.mig, v1alpha1.FromDeviceConfigManager: tt.dcm} {
				tool := toolOf(source)
				now := map[string]string{"pending": tool.words.pending, "failed": tool.words.failed, "success": tool.words.success}[tt.now]
				tt.facts.Choice.Reports = append(tt.facts.Choice.Reports, Report{tool: *tool, label: tt.label, now: now, follows: !tt.not})
				if value != "" {
					want[tool.state] = value
				}
			}
			m := Machine{Deadlines: DefaultDeadlines()}
			got := m.Next(tt.node, tt.facts).Labels
			if len(want) == 0 {
				assert.Empty(t, got)
				return
			}
			assert.True(t, maps.Equal(want, got), "%v", got)
		})
	}
}

// A switch goes on with its copy of a configuration while the ConfigMap is broken.
func TestABrokenConfigMapEndsNoSwitch(t *testing.T) {
	m := Machine{Deadlines: DefaultDeadlines()}
	step := m.Next(inState(v1alpha1.Draining), after(time.Second, held, keeps(names.ReasonConfigMapInvalid), func(f *Facts) { f.Choice.Missing = "new" }))
	assert.Equal(t, v1alpha1.Draining, step.Status.State)
}

func TestNodeLabelsOfTools(t *testing.T) {
	assert.Empty(t, Tools{}.NodeLabels())
	assert.Equal(t, []string{names.LabelKaiwoProfile, names.LabelKaiwoEnabled}, Tools{v1alpha1.FromKaiwo: {}}.NodeLabels())
	assert.Len(t, allTools.NodeLabels(), 8)
	assert.Equal(t, "the node's label "+names.LabelNos, sourceText(v1alpha1.FromNos))
}
