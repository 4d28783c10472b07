package helm_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestOpenShift: the plugin alone gets the constraints for privileged pods, and the other
// pods are as restricted-v2 wants them: no ids of their own.
func TestOpenShift(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		is   bool
	}{
		"another cluster": {nil, false},
		"found":           {[]string{"--api-versions", "security.openshift.io/v1"}, true},
		"said":            {[]string{"--set", "openshift.enabled=true"}, true},
		"denied":          {[]string{"--api-versions", "security.openshift.io/v1", "--set", "openshift.enabled=false"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bound := subjects(decode(t, render(t, chart, tt.args...)), "tranche-kubelet-plugin")
			assert.Equal(t, tt.is, slices.Contains(bound, "system:openshift:scc:privileged"), bound)
			for name, pod := range pods(t, append(tt.args, "--set", "controller.podSecurityContext.fsGroup=7")...) {
				want := ""
				switch {
				case tt.is && name == "plugin":
					want = "privileged"
				case tt.is:
					want = "restricted-v2"
				}
				assert.Equal(t, want, pod.Annotations["openshift.io/required-scc"], name)
				if name == "plugin" {
					continue
				}
				context := pod.Spec.SecurityContext
				assert.Equal(t, tt.is, context.RunAsUser == nil && context.RunAsGroup == nil && context.FSGroup == nil, name)
				// What restricted-v2 asks for and does not add itself.
				assert.True(t, *context.RunAsNonRoot, name)
				container := pod.Spec.Containers[0].SecurityContext
				assert.Equal(t, "ALL", string(container.Capabilities.Drop[0]), name)
				assert.False(t, *container.AllowPrivilegeEscalation, name)
				for _, volume := range pod.Spec.Volumes {
					assert.Nil(t, volume.HostPath, "%s: volume %s", name, volume.Name)
				}
			}
		})
	}
}

// TestOpenShiftAccount: the binding follows the name of the account.
func TestOpenShiftAccount(t *testing.T) {
	objects := decode(t, render(t, chart, "--set", "openshift.enabled=true,kubeletPlugin.serviceAccount.name=gpus,fullnameOverride=acme"))
	binding := named[*rbacv1.RoleBinding](t, objects, "acme-kubelet-plugin-scc")
	assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "gpus", Namespace: namespace}}, binding.Subjects)
}
