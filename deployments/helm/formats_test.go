package helm_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// TestFormats: each value makes its program follow the labels, and read one ConfigMap.
func TestFormats(t *testing.T) {
	for name, tt := range map[string]struct {
		set   string
		args  []string // of the controller, beside that for the device plugin's label
		reads string   // the ConfigMap
	}{
		"mig-parted":                  {"formats.migParted.enabled=true", []string{"--follow-labels=mig-parted"}, ""},
		"mig-parted with a ConfigMap": {"formats.migParted.enabled=true,formats.migParted.configMap=gpu-operator/mig", []string{"--follow-labels=mig-parted=gpu-operator/mig/config.yaml"}, "gpu-operator/mig"},
		"not enabled":                 {"formats.migParted.configMap=gpu-operator/mig", nil, ""},
		"device config manager":       {"formats.deviceConfigManager.enabled=true,formats.deviceConfigManager.configMap=kube-amd-gpu/dcm,formats.deviceConfigManager.key=x.json", []string{"--follow-labels=device-config-manager=kube-amd-gpu/dcm/x.json"}, "kube-amd-gpu/dcm"},
		"Kaiwo":                       {"formats.kaiwo.enabled=true", []string{"--follow-labels=kaiwo"}, ""},
		"nos":                         {"formats.nos.enabled=true", []string{"--follow-labels=nos"}, ""},
		"two":                         {"formats.nos.enabled=true,formats.kaiwo.enabled=true", []string{"--follow-labels=kaiwo", "--follow-labels=nos"}, ""},
		"device plugin":               {"formats.devicePlugin.defaultConfig=a", []string{"--device-plugin-default-config=a"}, ""},
		"device plugin, ConfigMap":    {"formats.devicePlugin.configMap=gpu-operator/slices", []string{"--follow-labels=device-plugin=gpu-operator/slices"}, "gpu-operator/slices"},
		"device plugin, all":          {"formats.devicePlugin.configMap=gpu-operator/slices,formats.devicePlugin.defaultConfig=a", []string{"--follow-labels=device-plugin=gpu-operator/slices", "--device-plugin-default-config=a"}, "gpu-operator/slices"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := decode(t, render(t, chart, "--set", tt.set))
			args := slices.DeleteFunc(deploymentOf(t, objects).Spec.Template.Spec.Containers[0].Args, func(arg string) bool {
				return !strings.HasPrefix(arg, "--follow-labels") && !strings.HasPrefix(arg, "--device-plugin-") ||
					arg == "--follow-labels=device-plugin="+namespace+"/tranche-device-plugin-configs"
			})
			assert.Equal(t, tt.args, append([]string(nil), args...))
			var reads []string
			for _, o := range objects {
				role, ok := o.(*rbacv1.Role)
				if !ok || role.Namespace == namespace {
					continue
				}
				require.Len(t, role.Rules, 1)
				rule := role.Rules[0]
				assert.Equal(t, []string{"configmaps"}, rule.Resources)
				assert.Equal(t, []string{"get", "list", "watch"}, rule.Verbs)
				for _, name := range rule.ResourceNames {
					reads = append(reads, role.Namespace+"/"+name)
				}
				requireBoundTo(t, all[*rbacv1.RoleBinding](objects), role)
			}
			assert.Equal(t, tt.reads, strings.Join(reads, " "))
		})
	}
}

// requireBoundTo checks that the controller has a Role, and nobody else.
func requireBoundTo(t *testing.T, bindings []*rbacv1.RoleBinding, role *rbacv1.Role) {
	t.Helper()
	i := slices.IndexFunc(bindings, func(b *rbacv1.RoleBinding) bool { return b.Namespace == role.Namespace && b.RoleRef.Name == role.Name })
	require.GreaterOrEqual(t, i, 0, role.Name)
	assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "tranche-controller", Namespace: namespace}}, bindings[i].Subjects)
}

// TestBadFormats: what cannot be a ConfigMap is refused.
func TestBadFormats(t *testing.T) {
	for set, want := range map[string]string{
		"formats.migParted.configMap=mig":        "/formats/migParted/configMap",
		"formats.migParted.configMap=a/b/c":      "/formats/migParted/configMap",
		"formats.migParted.key=a/b":              "/formats/migParted/key",
		"formats.nos.configMap=a/b":              "/formats/nos",
		"formats.migparted.enabled=true":         "/formats",
		"formats.devicePlugin.defaultConfig=a/b": "/formats/devicePlugin/defaultConfig",
		"formats.kaiwo.enabled=yes":              "/formats/kaiwo/enabled",
		"controller.reboot=Sometimes":            "/controller/reboot",
	} {
		_, stderr, err := helm(t, "template", "tranche", chart, "--kube-version", kubeVersion, "--set", set)
		require.Error(t, err, set)
		assert.Contains(t, stderr, want, set)
	}
}

// TestControllerWritesReports: the controller may write the reports of the projects that are
// followed, with their values, and nothing else.
func TestControllerWritesReports(t *testing.T) {
	node := func(labels ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{"zone": "1"}}}
		for i := 0; i < len(labels); i += 2 {
			n.Labels[labels[i]] = labels[i+1]
		}
		return n
	}
	const (
		mig, dcm = names.LabelMIGConfigState, names.LabelGPUConfigProfileState
		pauses   = "tranche-controller may change labels of a node only from true to paused-for-tranche and back, and only these: tranche.dev/gpu-monitoring"
		no       = pauses + "; and write progress to dcm.amd.com/gpu-config-profile-state, nvidia.com/mig.config.state"
		noDCM    = pauses + "; and write progress to nvidia.com/mig.config.state"
	)
	pause := []string{"--set", "controller.pauseLabels={tranche.dev/gpu-monitoring}"}
	both := policyNamed(t, decode(t, render(t, chart, append(pause, "--set", "formats.migParted.enabled=true,formats.deviceConfigManager.enabled=true")...)), "-controller-nodes")
	migOnly := policyNamed(t, decode(t, render(t, chart, append(pause, "--set", "formats.migParted.enabled=true")...)), "-controller-nodes")
	none := policyNamed(t, decode(t, render(t, chart, pause...)), "-controller-nodes")
	for name, tt := range map[string]struct {
		policy        policy
		before, after *corev1.Node
		want          string
	}{
		"a new report":          {both, node(), node(mig, "pending"), ""},
		"another value":         {both, node(mig, "pending"), node(mig, "rebooting"), ""},
		"the end":               {both, node(mig, "rebooting"), node(mig, "success"), ""},
		"a failure":             {both, node(mig, "what somebody wrote"), node(mig, "failed"), ""},
		"of DCM":                {both, node(), node(dcm, "in-progress"), ""},
		"a failure of DCM":      {both, node(dcm, "in-progress"), node(dcm, "failure"), ""},
		"nothing":               {both, node(mig, "success"), node(mig, "success"), ""},
		"a value of the other":  {both, node(), node(dcm, "failed"), no},
		"another text":          {both, node(), node(mig, "done"), no},
		"the order itself":      {both, node(), node(names.LabelMIGConfig, "all-disabled"), no},
		"removal":               {both, node(mig, "success"), node(), no},
		"beside another label":  {both, node(), node(mig, "success", "a", "b"), no},
		"of what is not on":     {migOnly, node(), node(dcm, "success"), noDCM},
		"what is on":            {migOnly, node(), node(mig, "success"), ""},
		"of nobody":             {none, node(), node(mig, "success"), pauses},
		"of nobody, a change":   {none, node(mig, "pending"), node(mig, "success"), pauses},
		"a pause and a report":  {both, node("tranche.dev/gpu-monitoring", "true"), node("tranche.dev/gpu-monitoring", names.PausedValue, mig, "pending"), ""},
		"the label of the zone": {both, node(mig, "success"), node(mig, "success", "zone", "success"), no},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, tt.policy.refusal(replacing(tt.before, tt.after))) })
	}
}
