package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

const kaiMemoryNamespace = "demo-translate-kai-memory"

// createKAIPods creates the pods of KAI's documentation.
func (s *suite) createKAIPods() {
	folder := filepath.Join(repository, "demo", "translate-kai")
	s.t.Cleanup(func() { s.kubectl("delete", "--ignore-not-found", "-f", folder) })
	s.kubectl("apply", "-f", folder)
	for _, file := range []string{"gpu-sharing", "gpu-sharing-non-default-container", "gpu-sharing-init-container"} {
		s.kubectl("-n", "demo-translate-kai", "apply", "--validate=strict", "-f", filepath.Join(folder, "pods", file+".yaml"))
	}
	for _, file := range []string{"gpu-memory", "nv-fractions-memory"} {
		s.kubectl("-n", kaiMemoryNamespace, "apply", "--validate=strict", "-f", filepath.Join(folder, "pods", file+".yaml"))
	}
}

// The container that the annotations name has what they ask for, and no other.
func checkTranslateKAI(s *suite, pods map[string]*corev1.Pod) {
	byMemory := s.demoPods(kaiMemoryNamespace)
	memory, quantity := byMemory["gpu-sharing"], byMemory["nv-fractions-memory"]
	for pod, limit := range map[*corev1.Pod]string{memory: "0=2000M", quantity: "0=7680M"} {
		s.requireSeesShare(pod, "gpu-workload")
		assert.Equal(s.t, limit, s.env(pod, "gpu-workload")["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
	}
	half := pods["gpu-sharing"]
	s.requireSeesShare(half, "gpu-workload")
	assert.Equal(s.t, "0.50", s.env(half, "gpu-workload")["GPU_PORTION"])
	assert.Equal(s.t, "0.5", half.Annotations["gpu-fraction"], "annotations stay")
	second := pods["gpu-sharing-non-default"]
	s.requireSeesShare(second, "gpu-workload")
	assert.Empty(s.t, s.seen(second, "sidecar"))
	assert.Empty(s.t, s.seen(second, "another-sidecar"))
	begun := pods["gpu-sharing-init-container"]
	assert.Contains(s.t, s.kubectl("-n", begun.Namespace, "logs", begun.Name, "-c", "gpu-init"), "GPU_PORTION=0.50")
	assert.Empty(s.t, s.seen(begun, "main-app"))
	for _, pod := range []*corev1.Pod{memory, quantity, half, second, begun} {
		assert.Equal(s.t, corev1.DefaultSchedulerName, pod.Spec.SchedulerName)
	}
}

// HAMi's limits are shares of GPUs of both vendors.
func checkTranslateHAMi(s *suite, pods map[string]*corev1.Pod) {
	s.requireSeesShare(pods["some-memory"], "main")
	env := s.env(pods["some-memory"], "main")
	assert.Equal(s.t, "0=3000M", env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
	assert.Equal(s.t, "30", env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
	assert.Equal(s.t, nodeC, pods["amd-memory"].Spec.NodeName)
	memory := s.allocated(pods["amd-memory"], "").ConsumedCapacity[names.CapacityMemory]
	assert.EqualValues(s.t, 96000*gpu.MiB, memory.Value())
}

func checkTranslateNos(s *suite, pods map[string]*corev1.Pod) {
	s.requireSeesShare(pods["slice"], "main")
	assert.Equal(s.t, "0=10000M", s.env(pods["slice"], "main")["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
}

// annotatedPod makes a pod that asks for a part of a GPU in KAI's way.
func (s *suite) annotatedPod(name string, annotations map[string]string) error {
	_, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []corev1.Container{{Name: "main", Image: "busybox:1.35", Command: []string{"sleep", "1000000"}}},
		},
	}, metav1.CreateOptions{})
	return err
}

// A pod keeps its GPU when its namespace is not translated any more; the next runs without one
// and is told. A template that somebody deletes is there again for the next pod.
func TestTranslatedPodsKeepTheirGPUs(t *testing.T) {
	s := start(t)
	half := map[string]string{"gpu-fraction": "0.5"}
	s.kubectl("label", "namespace", s.namespace, names.LabelTranslate+"=kai")
	// The admission plugin sees the label a little later.
	s.eventually("an amount that no GPU has is refused", func() (bool, string) {
		err := s.annotatedPod("refused", map[string]string{"gpu-fraction": "NaN"})
		if err == nil {
			s.delete("refused")
			return false, "the pod was created"
		}
		return apierrors.IsInvalid(err), err.Error()
	})
	require.NoError(t, s.annotatedPod("first", half))
	pod := s.waitRunning("first")
	s.requireSeesShare(pod, "main")
	assert.Equal(t, "0.5", s.kubectl("-n", s.namespace, "get", "pod", "first", "-o", "jsonpath={.metadata.annotations.gpu-fraction}"))
	templates := s.client.ResourceV1().ResourceClaimTemplates(s.namespace)
	require.NoError(t, templates.Delete(s.ctx, "tranche-fraction-500", metav1.DeleteOptions{}))
	require.NoError(t, s.annotatedPod("second", half))
	s.requireSeesShare(s.waitRunning("second"), "main")

	s.kubectl("label", "namespace", s.namespace, names.LabelTranslate+"-")
	s.eventually("pods are not translated any more", func() (bool, string) {
		require.NoError(t, s.annotatedPod("third", half))
		if claims := s.pod("third").Spec.ResourceClaims; len(claims) > 0 {
			s.delete("third")
			return false, "it has a claim"
		}
		return true, ""
	})
	s.waitPodEvent("third", names.EventAnnotationIgnored, "does not have the label tranche.dev/translate=kai")
	s.requireSeesShare(s.pod("first"), "main")
	assert.Equal(t, pod.UID, s.pod("first").UID)
}

// What a pod's policy names, the controller creates, and the API server changes nothing of it. Pods
// that ask for nothing get no template.
func TestTemplatesOfTranslatedPods(t *testing.T) {
	tr := startTranslator(t)
	nowhere := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"example.com/nowhere": "true"} }
	for name, ask := range map[string]struct {
		project string
		change  change
	}{
		"tranche-fraction-500-x2": {"kai", withAnnotations("gpu-fraction", "0.5", "gpu-fraction-num-devices", "2")},
		"tranche-memory-3000mi-compute-30.type-a100.type-h100": {"hami", func(p *corev1.Pod) {
			withLimits(0, "nvidia.com/gpumem", "3000", "nvidia.com/gpucores", "30")(p)
			withAnnotations("nvidia.com/use-gputype", "A100,H100")(p)
		}},
		"tranche-memory-10000mi": {"nos", withLimits(0, "nvidia.com/gpu-10gb", "1")},
		"":                       {"other", withClaim("gpu", "tranche-fraction-500")},
	} {
		namespace := tr.namespaces[ask.project]
		_, err := tr.client.CoreV1().Pods(namespace).Create(tr.ctx, podOf(nowhere, ask.change), metav1.CreateOptions{})
		require.NoError(t, err)
		if name == "" {
			continue
		}
		asked, err := claimtemplate.Parse(name)
		require.NoError(t, err)
		tr.eventually("there is the template "+name, func() (bool, string) {
			made, err := tr.client.ResourceV1().ResourceClaimTemplates(namespace).Get(tr.ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			assert.True(t, equality.Semantic.DeepEqual(asked.Spec(), made.Spec.Spec), "the API server changed it: %+v", made.Spec.Spec)
			return true, ""
		})
	}
	others, err := tr.client.ResourceV1().ResourceClaimTemplates(tr.namespaces["other"]).List(tr.ctx, metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, others.Items)
}

// Who takes over the controller gets no more than its templates.
func TestWhatTheControllerMayWrite(t *testing.T) {
	tr := startTranslator(t)
	as, kai := tr.asControllerWithoutRBAC(), tr.namespaces["kai"]
	template := func(name string, change func(*resourceapi.ResourceClaimTemplate)) *resourceapi.ResourceClaimTemplate {
		asked, err := claimtemplate.Parse("tranche-fraction-500")
		require.NoError(t, err)
		o := &resourceapi.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{names.LabelCreatedFrom: names.CreatedFromAmount}},
			Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: asked.Spec()},
		}
		change(o)
		return o
	}
	const ours, where, what = "may create and delete only ResourceClaimTemplates with the label", "only in namespaces with the label", "only for shares and whole GPUs"
	nothing := func(*resourceapi.ResourceClaimTemplate) {}
	for name, test := range map[string]struct {
		namespace string
		made      *resourceapi.ResourceClaimTemplate
		want      string
	}{
		"another name":    {kai, template("half", nothing), ours},
		"no label":        {kai, template("tranche-x", func(o *resourceapi.ResourceClaimTemplate) { o.Labels = nil }), ours},
		"another project": {tr.namespaces["other"], template("tranche-fraction-500", nothing), where},
		"no project":      {tr.namespace, template("tranche-fraction-500", nothing), where},
		"another class": {kai, template("tranche-x", func(o *resourceapi.ResourceClaimTemplate) {
			o.Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName = "nic.example.com"
		}), what},
		"an administrator": {kai, template("tranche-x", func(o *resourceapi.ResourceClaimTemplate) {
			o.Spec.Spec.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true)
		}), what},
		"a finalizer": {kai, template("tranche-x", func(o *resourceapi.ResourceClaimTemplate) { o.Finalizers = []string{"example.com/x"} }), what},
		"alternatives": {kai, template("tranche-x", func(o *resourceapi.ResourceClaimTemplate) {
			o.Spec.Spec.Devices.Requests[0] = resourceapi.DeviceRequest{Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "a", DeviceClassName: "nic.example.com"}}}
		}), what},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := as.ResourceClaimTemplates(test.namespace).Create(tr.ctx, test.made, dryCreate)
			require.ErrorContains(t, err, test.want)
		})
	}
	templates := tr.client.ResourceV1().ResourceClaimTemplates(kai)
	for name, made := range map[string]*resourceapi.ResourceClaimTemplate{
		"its own":      template("tranche-fraction-500", nothing),
		"no label":     template("tranche-x", func(o *resourceapi.ResourceClaimTemplate) { o.Labels = nil }),
		"another name": template("mine", nothing),
	} {
		made, err := templates.Create(tr.ctx, made, metav1.CreateOptions{})
		require.NoError(t, err)
		made.Annotations = map[string]string{"a": "b"}
		_, err = as.ResourceClaimTemplates(kai).Update(tr.ctx, made, metav1.UpdateOptions{})
		require.ErrorContains(t, err, ours)
		if name != "its own" {
			require.ErrorContains(t, as.ResourceClaimTemplates(kai).Delete(tr.ctx, made.Name, metav1.DeleteOptions{}), ours)
		}
	}

	// By RBAC, it may do that with its own templates, and nothing else.
	program := kubernetes.NewForConfigOrDie(tr.configAs("tranche-controller", nil))
	templates = program.ResourceV1().ResourceClaimTemplates(kai)
	require.NoError(t, templates.Delete(tr.ctx, "tranche-fraction-500", metav1.DeleteOptions{}))
	_, err := templates.Create(tr.ctx, template("tranche-fraction-500", nothing), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = program.CoreV1().Pods(kai).Create(tr.ctx, podOf(), metav1.CreateOptions{})
	require.ErrorContains(t, err, "cannot create resource")
}

// asControllerWithoutRBAC is the controller with every right, so that only the policies are tested.
func (tr *translator) asControllerWithoutRBAC() resourceclient.ResourceV1Interface {
	config := rest.CopyConfig(tr.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + pluginNamespace + ":tranche-controller", Groups: []string{"system:masters"},
	}
	return kubernetes.NewForConfigOrDie(config).ResourceV1()
}
