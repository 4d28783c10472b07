package apiserver

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/controller/waiting"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/allocator"
)

// grant gives a program the rights outside namespaces that a template of the chart has for it.
func (c *cluster) grant(template string, args ...string) {
	c.t.Helper()
	helm := os.Getenv("HELM")
	if helm == "" {
		c.t.Skip("HELM names no helm: make test-unit does")
	}
	args = append([]string{
		"template", "tranche", filepath.Join("..", "..", "deployments", "helm", "tranche"),
		"--namespace", "tranche-system", "--kube-version", "1.37.1", "--show-only", template,
	}, args...)
	out, err := exec.CommandContext(c.t.Context(), helm, args...).CombinedOutput()
	require.NoError(c.t, err, string(out))
	direct, err := client.New(c.config, client.Options{})
	require.NoError(c.t, err)
	for document := range strings.SplitSeq(string(out), "\n---\n") {
		var o unstructured.Unstructured
		require.NoError(c.t, yaml.Unmarshal([]byte(document), &o.Object))
		if len(o.Object) > 0 && o.GetNamespace() == "" {
			require.NoError(c.t, direct.Create(c.t.Context(), &o), o.GetName())
		}
	}
}

// as has the rights of an account of the chart.
func (c *cluster) as(account string) *rest.Config {
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:tranche-system:" + account}
	return config
}

// startWaiting runs what tells pods why they wait, after a second, with the rights that the chart gives
// the controller.
func (c *cluster) startWaiting() {
	c.t.Helper()
	c.grant("templates/controllerrbac.yaml")
	config := c.as("tranche-controller")
	scheme, err := controller.NewScheme()
	require.NoError(c.t, err)
	options := controller.Options{MaxUnavailable: "1", Deadlines: state.DefaultDeadlines(), Registry: prometheus.NewRegistry()}
	caches := options.CacheOptions()
	maps.Copy(caches.ByObject, waiting.CacheObjects())
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme: scheme, Cache: caches, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	require.NoError(c.t, err)
	require.NoError(c.t, controller.Setup(c.t.Context(), mgr, options))
	require.NoError(c.t, waiting.Setup(mgr, waiting.Options{After: time.Second, PerSecond: 100, Registry: prometheus.NewRegistry()}))
	c.run("the controller", mgr.Start)
}

// publish publishes the slices of a node with one GPU, and its GPUNode.
func (c *cluster) publish(node string) {
	c.t.Helper()
	inv, err := models.ParseInventory([]byte("gpus: [{model: H100-80GB, count: 1}]"))
	require.NoError(c.t, err)
	resources, errs := publish.Resources(node, []publish.GPU{{GPU: inv.Hardware(node)[0]}})
	require.Empty(c.t, errs)
	owner, err := c.kube.CoreV1().Nodes().Get(c.t.Context(), node, metav1.GetOptions{})
	require.NoError(c.t, err)
	for _, s := range allocator.Slices(names.DriverName, node, resources) {
		s = s.DeepCopy()
		s.Name, s.GenerateName = "", node+"-"
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: owner.UID}}
		_, err := c.kube.ResourceV1().ResourceSlices().Create(c.t.Context(), s, metav1.CreateOptions{})
		require.NoError(c.t, err)
	}
	_, err = c.tranche.GPUNodes().Create(c.t.Context(), &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// waits makes a pod that waits for a device of a class, with a claim of its own.
func (c *cluster) waits(name, class string) {
	c.t.Helper()
	ctx := c.t.Context()
	_, err := c.kube.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Create(ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class},
		}}}},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	_, err = c.kube.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			// The node is not ready.
			Tolerations:    []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}},
			Containers:     []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// reasons are those of the events that the controller has written on a pod.
func (c *cluster) reasons(pod string) (all []string) {
	c.t.Helper()
	list, err := c.kube.CoreV1().Events(metav1.NamespaceDefault).List(c.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + pod})
	require.NoError(c.t, err)
	for i := range list.Items {
		assert.Equal(c.t, names.ControllerName, list.Items[i].ReportingController)
		all = append(all, list.Items[i].Reason)
	}
	return all
}

// A pod is told why it waits when that is known, and again when the reason changes: because of
// claims, taints, slices and classes. Nobody is asked in between.
func TestPodsAreToldWhyTheyWait(t *testing.T) {
	c := startCluster(t)
	ctx := t.Context()
	c.publish(nodeName)
	c.startWaiting()
	_, err := c.kube.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{})
	require.NoError(t, err)
	c.waits("other", "nothing.tranche.dev")
	c.waits("p", class.Name)
	c.await("no event about the class", func() bool { return len(c.reasons("other")) > 0 })
	assert.Equal(t, []string{names.EventRequestInvalid}, c.reasons("other"))
	assert.Empty(t, c.reasons("p"), "it has room")

	// The taint of an administrator.
	_, err = c.kube.ResourceV1().DeviceTaintRules().Create(ctx, &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "fan"},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: ptr.To(names.DriverName)},
			Taint:          resourceapi.DeviceTaint{Key: "example.com/fan", Effect: resourceapi.DeviceTaintEffectNoSchedule},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	c.await("no event about the taint", func() bool { return len(c.reasons("p")) > 0 })
	assert.Equal(t, []string{names.EventDevicesTainted}, c.reasons("p"))

	// A slice that changes.
	require.NoError(t, c.kube.ResourceV1().DeviceTaintRules().Delete(ctx, "fan", metav1.DeleteOptions{}))
	for _, s := range c.slices() {
		require.NoError(t, c.kube.ResourceV1().ResourceSlices().Delete(ctx, s.Name, metav1.DeleteOptions{}))
	}
	c.await("no event about the slices", func() bool { return slices.Contains(c.reasons("p"), names.EventGPUsUnusable) })
}
