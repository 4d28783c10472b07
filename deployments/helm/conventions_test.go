package helm_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/uninstall"
)

// pods are the pod templates of the chart by what they run, those of hooks included.
func pods(t *testing.T, args ...string) map[string]corev1.PodTemplateSpec {
	t.Helper()
	objects := decode(t, render(t, chart, append(args, "--set", "webPage.enabled=true", withHooks)...))
	test := one[*corev1.Pod](t, objects)
	return map[string]corev1.PodTemplateSpec{
		"plugin":     one[*appsv1.DaemonSet](t, objects).Spec.Template,
		"controller": deploymentOf(t, objects).Spec.Template,
		"web":        componentOf(t, objects, "web").Spec.Template,
		"uninstall":  one[*batchv1.Job](t, objects).Spec.Template,
		"test":       {ObjectMeta: test.ObjectMeta, Spec: test.Spec},
	}
}

// TestImage: every pod has the image that the values name.
func TestImage(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for set, want := range map[string]string{
		"image.pullPolicy=Never":                                      "ghcr.io/tranche-dev/tranche:0.1.0",
		"image.tag=edge":                                              "ghcr.io/tranche-dev/tranche:edge",
		"image.tag=edge,image.digest=" + digest:                       "ghcr.io/tranche-dev/tranche@" + digest,
		"global.imageRegistry=r.example":                              "r.example/tranche-dev/tranche:0.1.0",
		"global.imageRegistry=r.example:5000/cache":                   "r.example:5000/cache/tranche-dev/tranche:0.1.0",
		"global.imageRegistry=r.example,image.repository=gpu/tranche": "r.example/gpu/tranche:0.1.0",
		"global.imageRegistry=r.example,image.repository=localhost/t": "r.example/t:0.1.0",
		"global.imageRegistry=r.example,image.repository=a:5000/b/t":  "r.example/b/t:0.1.0",
	} {
		for name, pod := range pods(t, "--set", set) {
			assert.Equal(t, want, pod.Spec.Containers[0].Image, "%s with %s", name, set)
		}
	}
	for name, pod := range pods(t, "--set", "imagePullSecrets[0].name=a,global.imagePullSecrets[0].name=a,global.imagePullSecrets[1].name=b") {
		assert.Equal(t, []corev1.LocalObjectReference{{Name: "a"}, {Name: "b"}}, pod.Spec.ImagePullSecrets, name)
	}
}

// TestLabels: all objects are part of Tranche and have the common labels, selectors do not.
func TestLabels(t *testing.T) {
	args := []string{"--set", `commonLabels.example\.com/team=gpu,kubeletPlugin.podLabels.a=plugin,controller.podLabels.a=controller`,
		"--set", "metrics.service.enabled=true,networkPolicy.enabled=true,resourceQuota.enabled=true,metrics.dashboard.enabled=true", withHooks}
	objects := decode(t, render(t, chart, args...))
	labelled := 0
	for _, object := range objects {
		accessor, err := meta.Accessor(object)
		require.NoError(t, err)
		labels := accessor.GetLabels()
		assert.Equal(t, "tranche", labels["app.kubernetes.io/part-of"], "%T %s", object, accessor.GetName())
		assert.Equal(t, "gpu", labels["example.com/team"], "%T %s", object, accessor.GetName())
		assert.Empty(t, labels["a"], "%T %s", object, accessor.GetName())
		labelled++
	}
	assert.Greater(t, labelled, 80)
	for name, pod := range pods(t, args...) {
		assert.Equal(t, "gpu", pod.Labels["example.com/team"], name)
		want := ""
		if name == "plugin" || name == "controller" {
			want = name
		}
		assert.Equal(t, want, pod.Labels["a"], name)
	}
	for _, selector := range []map[string]string{
		one[*appsv1.DaemonSet](t, objects).Spec.Selector.MatchLabels,
		one[*appsv1.Deployment](t, objects).Spec.Selector.MatchLabels,
		all[*corev1.Service](objects)[0].Spec.Selector,
	} {
		assert.Len(t, selector, 3)
		assert.Empty(t, selector["app.kubernetes.io/part-of"], "a selector cannot be changed")
	}
}

// TestExtras: arguments come after those of the chart, variables beside its own.
func TestExtras(t *testing.T) {
	for value, name := range map[string]string{"kubeletPlugin": "plugin", "controller": "controller"} {
		plain := pods(t)[name].Spec.Containers[0]
		got := pods(t, "--set-json", value+`.extraArgs=["-v=6","--x=a,b"]`, "--set", value+".extraEnv[0].name=A,"+value+".extraEnv[0].value=b")[name].Spec.Containers[0]
		assert.Equal(t, append(plain.Args, "-v=6", "--x=a,b"), got.Args, name)
		assert.Equal(t, append(plain.Env, corev1.EnvVar{Name: "A", Value: "b"}), got.Env, name)
	}
}

// TestServiceAccounts: pods, roles and policies have the account that the values name.
func TestServiceAccounts(t *testing.T) {
	objects := decode(t, render(t, chart, "--set", "kubeletPlugin.serviceAccount.create=false,kubeletPlugin.serviceAccount.name=p",
		"--set", "controller.serviceAccount.name=c,controller.serviceAccount.annotations.a=b"))
	account := one[*corev1.ServiceAccount](t, objects)
	assert.Equal(t, "c", account.Name)
	assert.Equal(t, map[string]string{"a": "b"}, account.Annotations)
	assert.Equal(t, "p", one[*appsv1.DaemonSet](t, objects).Spec.Template.Spec.ServiceAccountName)
	assert.Equal(t, "c", one[*appsv1.Deployment](t, objects).Spec.Template.Spec.ServiceAccountName)
	assert.Len(t, subjects(objects, "p"), 2)
	assert.Len(t, subjects(objects, "c"), 3)
	for suffix, user := range map[string]string{"-resourceslices": "p", "-claim-status": "p", "-gpunodes": "p", "-controller-nodes": "c"} {
		assert.True(t, policyNamed(t, objects, suffix).appliesTo("system:serviceaccount:"+namespace+":"+user), suffix)
	}
}

// TestSecurityContexts: each key can be changed and removed alone.
func TestSecurityContexts(t *testing.T) {
	found := pods(t, "--set", "controller.podSecurityContext.runAsUser=1000,controller.podSecurityContext.runAsGroup=null",
		"--set", "controller.securityContext.readOnlyRootFilesystem=false",
		"--set", "kubeletPlugin.podSecurityContext.fsGroup=7,kubeletPlugin.securityContext.seLinuxOptions.type=spc_t")
	for _, name := range []string{"controller", "web", "uninstall", "test"} {
		pod, container := found[name].Spec.SecurityContext, found[name].Spec.Containers[0].SecurityContext
		assert.EqualValues(t, 1000, *pod.RunAsUser, name)
		assert.Nil(t, pod.RunAsGroup, name)
		assert.True(t, *pod.RunAsNonRoot, name)
		assert.False(t, *container.ReadOnlyRootFilesystem, name)
		assert.False(t, *container.AllowPrivilegeEscalation, name)
	}
	plugin := found["plugin"].Spec
	assert.Equal(t, &corev1.PodSecurityContext{FSGroup: ptr.To[int64](7)}, plugin.SecurityContext)
	assert.True(t, *plugin.Containers[0].SecurityContext.Privileged)
	assert.Equal(t, "spc_t", plugin.Containers[0].SecurityContext.SELinuxOptions.Type)
}

// TestServices: a Service for each program, of its port, and ServiceMonitors that select it.
func TestServices(t *testing.T) {
	assert.Empty(t, all[*corev1.Service](decode(t, render(t, chart))))
	args := []string{"--set", "kubeletPlugin.httpPort=9400,controller.metricsPort=9401,metrics.service.annotations.a=b"}
	documents := render(t, chart, append(args, "--set", "metrics.service.enabled=true,webPage.enabled=true,webPage.httpPort=9402")...)
	assert.NotContains(t, strings.Join(documents, "\n"), "kind: ServiceMonitor")
	objects := decode(t, documents)
	for name, port := range map[string]int32{"tranche-kubelet-plugin": 9400, "tranche-controller": 9401, "tranche-web-metrics": 9402} {
		service := named[*corev1.Service](t, objects, name)
		assert.Equal(t, "None", service.Spec.ClusterIP)
		assert.Equal(t, "b", service.Annotations["a"])
		assert.Equal(t, port, service.Spec.Ports[0].Port)
		assert.Equal(t, "http", service.Spec.Ports[0].TargetPort.StrVal)
		require.Subset(t, service.Labels, service.Spec.Selector)
	}
	monitors := 0
	for _, document := range render(t, chart, append(args, "--set", "webPage.enabled=true,metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.interval=5s,metrics.serviceMonitor.labels.c=d")...) {
		if !strings.Contains(document, "\nkind: ServiceMonitor\n") {
			continue
		}
		monitors++
		var monitor struct {
			Metadata struct {
				Name   string
				Labels map[string]string
			}
			Spec struct {
				Selector  struct{ MatchLabels map[string]string }
				Endpoints []struct{ Port, Interval string }
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(document), &monitor))
		service := named[*corev1.Service](t, objects, monitor.Metadata.Name)
		assert.Equal(t, service.Spec.Selector, monitor.Spec.Selector.MatchLabels)
		assert.Equal(t, service.Spec.Ports[0].Name, monitor.Spec.Endpoints[0].Port)
		assert.Equal(t, "5s", monitor.Spec.Endpoints[0].Interval)
		assert.Equal(t, "d", monitor.Metadata.Labels["c"])
	}
	assert.Equal(t, 3, monitors)
}

// TestHelmTest: the pod claims from classes that are installed.
func TestHelmTest(t *testing.T) {
	request := func(args ...string) resourceapi.DeviceRequest {
		objects := decode(t, render(t, chart, append(args, withHooks)...))
		template, pod := one[*resourceapi.ResourceClaimTemplate](t, objects), one[*corev1.Pod](t, objects)
		assert.Equal(t, template.Name, *pod.Spec.ResourceClaims[0].ResourceClaimTemplateName)
		assert.Equal(t, []corev1.ResourceClaim{{Name: pod.Spec.ResourceClaims[0].Name}}, pod.Spec.Containers[0].Resources.Claims)
		assert.Equal(t, []string{"devices"}, pod.Spec.Containers[0].Args)
		for _, object := range []runtime.Object{template, pod} {
			accessor, err := meta.Accessor(object)
			require.NoError(t, err)
			assert.Equal(t, "test", accessor.GetAnnotations()["helm.sh/hook"])
		}
		return template.Spec.Spec.Devices.Requests[0]
	}
	classes := deviceClasses(t)
	for _, alternative := range request().FirstAvailable {
		assert.Contains(t, classes, alternative.DeviceClassName)
	}
	assert.Equal(t, "gpu-amd.tranche.dev", request("--set", "test.deviceClass=gpu-amd.tranche.dev").Exactly.DeviceClassName)
	assert.Equal(t, "mine", request("--set", "test.deviceClass=mine,deviceClasses.enabled=false").Exactly.DeviceClassName)
	assert.Empty(t, all[*corev1.Pod](decode(t, render(t, chart, "--set", "deviceClasses.enabled=false", withHooks))))
}

// TestAboutTheChart: what Artifact Hub shows is what the chart installs.
func TestAboutTheChart(t *testing.T) {
	content, err := os.ReadFile(chart + "/Chart.yaml")
	require.NoError(t, err)
	var about struct {
		Icon, AppVersion string
		Maintainers      []struct{ Name, URL string }
		Annotations      map[string]string
	}
	require.NoError(t, yaml.Unmarshal(content, &about))
	require.NotEmpty(t, about.Maintainers)
	path, ours := strings.CutPrefix(about.Icon, "https://raw.githubusercontent.com/tranche-dev/tranche/main/")
	require.True(t, ours)
	icon, err := os.ReadFile("../../" + path)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(icon), "<svg "))

	var images []struct{ Image string }
	require.NoError(t, yaml.Unmarshal([]byte(about.Annotations["artifacthub.io/images"]), &images))
	require.Len(t, images, 1)
	assert.Equal(t, pods(t)["plugin"].Spec.Containers[0].Image, images[0].Image)
	var crds []struct{ Kind, Name, Version string }
	require.NoError(t, yaml.Unmarshal([]byte(about.Annotations["artifacthub.io/crds"]), &crds))
	installed := all[runtime.Object](decode(t, render(t, chart, "--show-only", "templates/crds.yaml")))
	require.Len(t, crds, len(installed))
	for _, object := range installed {
		encoded, err := json.Marshal(object)
		require.NoError(t, err)
		var definition struct {
			Metadata struct{ Name string }
			Spec     struct {
				Names    struct{ Kind string }
				Versions []struct{ Name string }
			}
		}
		require.NoError(t, json.Unmarshal(encoded, &definition))
		assert.Contains(t, crds, struct{ Kind, Name, Version string }{definition.Spec.Names.Kind, definition.Metadata.Name, definition.Spec.Versions[0].Name})
	}
}

// subjects are the bindings of roles to a ServiceAccount, by what is bound.
func subjects(objects []runtime.Object, account string) (found []string) {
	bound := func(name string, subjects []rbacv1.Subject) {
		for _, s := range subjects {
			if s.Name == account {
				found = append(found, name)
			}
		}
	}
	for _, b := range all[*rbacv1.ClusterRoleBinding](objects) {
		bound(b.RoleRef.Name, b.Subjects)
	}
	for _, b := range all[*rbacv1.RoleBinding](objects) {
		bound(b.RoleRef.Name, b.Subjects)
	}
	return found
}

// TestKindsOfTheChart: `kubectl tranche uninstall --check` looks for every kind that the
// chart installs.
func TestKindsOfTheChart(t *testing.T) {
	values := []string{"--values", "testdata/custom.values.yaml", "--set", "metrics.serviceMonitor.enabled=true", withHooks}
	for _, document := range render(t, chart, values...) {
		var kind metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(document), &kind))
		if kind.Kind == "" {
			continue // a comment
		}
		resource, _ := meta.UnsafeGuessKindToResource(kind.GroupVersionKind())
		assert.Contains(t, uninstall.Kinds, resource)
	}
}
