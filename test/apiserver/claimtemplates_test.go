package apiserver

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimtemplate"
	"github.com/tranche-dev/tranche/pkg/controller"
	"github.com/tranche-dev/tranche/pkg/controller/claimtemplates"
	"github.com/tranche-dev/tranche/pkg/controller/state"
)

// asController is a configuration with the rights of the controller.
func (tr *translator) asController() *rest.Config {
	config := rest.CopyConfig(tr.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:tranche-system:tranche-controller"}
	return config
}

// startController runs what creates templates, with the rights that the chart gives it and
// those caches that the program has.
func (tr *translator) startController() {
	tr.t.Helper()
	scheme, err := controller.NewScheme()
	require.NoError(tr.t, err)
	options := controller.Options{MaxUnavailable: "1", Deadlines: state.DefaultDeadlines()}
	caches := options.CacheOptions()
	maps.Copy(caches.ByObject, claimtemplates.CacheObjects())
	mgr, err := ctrl.NewManager(tr.asController(), manager.Options{
		Scheme: scheme, Cache: caches, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	require.NoError(tr.t, err)
	require.NoError(tr.t, claimtemplates.Setup(mgr, claimtemplates.Projects))
	c := &cluster{t: tr.t}
	c.run("the controller", mgr.Start)
}

func (tr *translator) pod(namespace, name string, changes ...change) {
	tr.t.Helper()
	p := podOf(changes...)
	p.Name = name
	_, err := tr.kube.CoreV1().Pods(namespace).Create(tr.t.Context(), p, metav1.CreateOptions{})
	require.NoError(tr.t, err)
}

func (tr *translator) templates(namespace string) map[string]*resourceapi.ResourceClaimTemplate {
	tr.t.Helper()
	list, err := tr.kube.ResourceV1().ResourceClaimTemplates(namespace).List(tr.t.Context(), metav1.ListOptions{})
	require.NoError(tr.t, err)
	all := map[string]*resourceapi.ResourceClaimTemplate{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all
}

// What the policy names, the controller creates, also again.
func TestTemplatesOfTranslatedPods(t *testing.T) {
	tr := startTranslator(t)
	tr.startController()
	tr.pod("kai", "half", withAnnotations("gpu-fraction", "0.5", "gpu-fraction-num-devices", "2"))
	tr.pod("hami", "some", withLimits(0, "nvidia.com/gpumem", "3000", "nvidia.com/gpucores", "30"), withAnnotations("nvidia.com/use-gputype", "A100,H100"))
	tr.pod("nos", "slice", withLimits(0, "nvidia.com/gpu-10gb", "1"))
	tr.pod("other", "other", withClaim("gpu", "tranche-fraction-500"))
	for namespace, name := range map[string]string{
		"kai": "tranche-fraction-500-x2", "hami": "tranche-memory-3000mi-compute-30.type-a100.type-h100", "nos": "tranche-memory-10000mi",
	} {
		tr.await("no template "+name, func() bool { return tr.templates(namespace)[name] != nil })
		asked, err := claimtemplate.Parse(name)
		require.NoError(t, err)
		made := tr.templates(namespace)[name]
		assert.True(t, equality.Semantic.DeepEqual(asked.Spec(), made.Spec.Spec), "the API server changed it: %+v", made.Spec.Spec)
		require.NoError(t, tr.kube.ResourceV1().ResourceClaimTemplates(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
		tr.await("the template is not created again", func() bool {
			again := tr.templates(namespace)[name]
			return again != nil && again.UID != made.UID
		})
	}
	assert.Zero(t, len(tr.templates("other")))
}

// A pod that runs without a GPU is told why, also one of a namespace that gets the label later.
func TestIgnoredAnnotations(t *testing.T) {
	tr := startTranslator(t)
	tr.startController()
	tr.pod("other", "half", withAnnotations("gpu-fraction", "0.5"))
	tr.pod("other", "by-kai", withAnnotations("gpu-fraction", "0.5"), byScheduler("kai-scheduler"))
	tr.pod("other", "plain")
	var events *corev1.EventList
	tr.await("no event", func() bool {
		var err error
		events, err = tr.kube.CoreV1().Events("other").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(events.Items) > 0
	})
	require.Len(t, events.Items, 1)
	e := events.Items[0]
	assert.Equal(t, names.EventAnnotationIgnored, e.Reason)
	assert.Equal(t, "half", e.InvolvedObject.Name)
	assert.Contains(t, e.Message, "namespace other does not have the label tranche.dev/translate=kai")
}

// More amounts than a namespace can have: the templates are limited, and other namespaces get
// theirs.
func TestMoreAmountsThanANamespaceCanHave(t *testing.T) {
	tr := startTranslator(t)
	for i := range 520 {
		tr.pod("kai", fmt.Sprint("pod-", i), withAnnotations("gpu-memory", fmt.Sprint(1000+i)))
	}
	tr.startController()
	tr.pod("nos", "slice", withLimits(0, "nvidia.com/gpu-10gb", "1"))
	tr.await("too few templates", func() bool { return len(tr.templates("kai")) == 500 })
	tr.await("no template elsewhere", func() bool { return len(tr.templates("nos")) == 1 })
	tr.await("the other pods are not told", func() bool {
		events, err := tr.kube.CoreV1().Events("kai").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + names.EventTooManyAmounts})
		require.NoError(t, err)
		return len(events.Items) == 20
	})
	assert.Equal(t, 500, len(tr.templates("kai")))
	// Two pods that go make room for two that wait.
	for _, name := range []string{"pod-0", "pod-1"} {
		require.NoError(t, tr.kube.CoreV1().Pods("kai").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	}
	tr.await("no room is made", func() bool { return tr.templates("kai")["tranche-memory-1501mi"] != nil })
	assert.Equal(t, 500, len(tr.templates("kai")))
}

// Who takes over the controller gets no more than its templates.
func TestWhatTheControllerMayWrite(t *testing.T) {
	tr := startTranslator(t)
	as := tr.asControllerWithoutRBAC()
	template := func(name string, change func(*resourceapi.ResourceClaimTemplate)) *resourceapi.ResourceClaimTemplate {
		asked, err := claimtemplate.Parse("tranche-fraction-500")
		require.NoError(t, err)
		o := &resourceapi.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{names.LabelFromAmount: "true"}},
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
		"its own":         {"kai", template("tranche-fraction-500", nothing), ""},
		"another name":    {"kai", template("half", nothing), ours},
		"no label":        {"kai", template("tranche-x", func(o *resourceapi.ResourceClaimTemplate) { o.Labels = nil }), ours},
		"another project": {"other", template("tranche-fraction-500", nothing), where},
		"no project":      {metav1.NamespaceDefault, template("tranche-fraction-500", nothing), where},
		"another class": {"kai", template("tranche-x", func(o *resourceapi.ResourceClaimTemplate) {
			o.Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName = "nic.example.com"
		}), what},
		"an administrator": {"kai", template("tranche-x", func(o *resourceapi.ResourceClaimTemplate) {
			o.Spec.Spec.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true)
		}), what},
		"a finalizer": {"kai", template("tranche-x", func(o *resourceapi.ResourceClaimTemplate) { o.Finalizers = []string{"example.com/x"} }), what},
		"alternatives": {"kai", template("tranche-x", func(o *resourceapi.ResourceClaimTemplate) {
			o.Spec.Spec.Devices.Requests[0] = resourceapi.DeviceRequest{Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "a", DeviceClassName: "nic.example.com"}}}
		}), what},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := as.ResourceClaimTemplates(test.namespace).Create(t.Context(), test.made, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
	admin := tr.kube.ResourceV1().ResourceClaimTemplates("kai")
	for name, want := range map[string]string{"tranche-fraction-500": "", "tranche-mine": ours, "mine": ours} {
		made := template(name, func(o *resourceapi.ResourceClaimTemplate) {
			if name == "tranche-mine" {
				o.Labels = nil
			}
		})
		made, err := admin.Create(t.Context(), made, metav1.CreateOptions{})
		require.NoError(t, err)
		made.Annotations = map[string]string{"a": "b"}
		_, err = as.ResourceClaimTemplates("kai").Update(t.Context(), made, metav1.UpdateOptions{})
		require.ErrorContains(t, err, ours)
		err = as.ResourceClaimTemplates("kai").Delete(t.Context(), name, metav1.DeleteOptions{})
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}

	// And by RBAC, nothing else.
	of := tr.asController()
	_, err := kubernetes.NewForConfigOrDie(of).CoreV1().Pods("kai").Create(t.Context(), podOf(), metav1.CreateOptions{})
	require.True(t, err != nil && strings.Contains(err.Error(), "cannot create resource"), err)
}
