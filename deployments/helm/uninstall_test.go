package helm_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// hooks returns what helm creates only to uninstall.
func hooks(t *testing.T, args ...string) []runtime.Object {
	t.Helper()
	var found []runtime.Object
	for _, object := range decode(t, render(t, chart, append(args, withHooks)...)) {
		accessor, err := meta.Accessor(object)
		require.NoError(t, err)
		if accessor.GetAnnotations()["helm.sh/hook"] == "pre-delete" {
			found = append(found, object)
		}
	}
	return found
}

// TestUninstallHook: everything that the Job needs is there only with it, in
// this order, and is gone however it ends.
func TestUninstallHook(t *testing.T) {
	objects := hooks(t, "--namespace", "gpu-drivers", "--set", "fullnameOverride=acme-gpu")
	require.Len(t, objects, 6)
	for _, object := range objects {
		accessor, err := meta.Accessor(object)
		require.NoError(t, err)
		require.Equal(t, "acme-gpu-uninstall", accessor.GetName())
		require.Equal(t, "pre-delete", accessor.GetAnnotations()["helm.sh/hook"])
		require.True(t, strings.HasPrefix(accessor.GetAnnotations()["helm.sh/hook-delete-policy"], "before-hook-creation,hook-succeeded"))
	}
	account := one[*corev1.ServiceAccount](t, objects)
	job := one[*batchv1.Job](t, objects)
	pod := job.Spec.Template.Spec
	require.Equal(t, account.Name, pod.ServiceAccountName)
	require.Equal(t, "before-hook-creation,hook-succeeded,hook-failed", job.Annotations["helm.sh/hook-delete-policy"])
	require.Equal(t, "hook-failed,hook-succeeded", job.Annotations["helm.sh/hook-output-log-policy"])
	require.Equal(t, []string{"uninstall", "--release=tranche", "--revision=1", "--daemonset=acme-gpu-kubelet-plugin", "--controller=acme-gpu-controller", "--scheduler=acme-gpu-scheduler"}, pod.Containers[0].Args)
	for _, subjects := range [][]rbacv1.Subject{one[*rbacv1.ClusterRoleBinding](t, objects).Subjects, one[*rbacv1.RoleBinding](t, objects).Subjects} {
		require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: "gpu-drivers"}}, subjects)
	}
	require.NotContains(t, verbsOn(objects, t, "resourceslices"), "delete")
	for _, toleration := range pod.Tolerations {
		require.NotEmpty(t, toleration.Key, "a toleration of every taint would let it go to a dead node")
	}

	require.Empty(t, hooks(t, "--set", "uninstall.hook.enabled=false"))

	forced := hooks(t, "--set", "uninstall.force=true")
	require.Contains(t, one[*batchv1.Job](t, forced).Spec.Template.Spec.Containers[0].Args, "--force")
	require.Contains(t, verbsOn(forced, t, "resourceslices"), "delete")
}

func verbsOn(objects []runtime.Object, t *testing.T, resource string) (verbs []string) {
	t.Helper()
	for _, rule := range one[*rbacv1.ClusterRole](t, objects).Rules {
		for _, r := range rule.Resources {
			if r == resource {
				verbs = append(verbs, rule.Verbs...)
			}
		}
	}
	return verbs
}
