package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/why"
)

// situation is a way in which an object waits.
type situation struct {
	name string
	// make makes the object, and what it needs.
	make func(s *suite, name string)
	// asked is TYPE/NAME, empty: the pod of the name.
	asked string
	// as is the user who asks, empty: an administrator.
	as string
	// state is what `why` must say, and says what must be in the summary, quotes, remedies or notes.
	state string
	says  []string
}

// answered is what is used of the JSON of an explanation.
type answered struct {
	State    string     `json:"state"`
	Answer   string     `json:"reason"`
	Summary  string     `json:"message"`
	Pods     []answered `json:"pods"`
	Exceeded []struct {
		Quota string `json:"quotaName"`
	} `json:"exceededQuotas"`
}

// What the scheduler, other controllers and the API server say of objects that wait has its answer: for
// administrators, and for tenants, who are told what they cannot see. Each answer is in the tests of pkg/why.
func TestWhySituations(t *testing.T) {
	s := start(t)
	s.requireTaintRules()
	other := s.otherNamespace("holders")
	s.prepareSituations(other)
	all := slices.Concat(podSituations(), deviceSituations(), ownerSituations(), tenantSituations(other.namespace))
	for _, x := range all {
		if x.make != nil {
			x.make(s, x.name)
		}
	}
	for _, x := range all {
		t.Run(x.name, func(t *testing.T) { s.on(t).requireAnswer(x) })
	}
	t.Run("events", func(t *testing.T) { s.on(t).requireEvents(other.namespace) })
	t.Run("late template", func(t *testing.T) { s.on(t).requireLateTemplate() })
	t.Run("node", func(t *testing.T) { s.on(t).requireNodeSituations() })
}

// otherNamespace is the suite in another namespace, until the end.
func (s *suite) otherNamespace(prefix string) *suite {
	s.t.Helper()
	namespace, err := s.client.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	other := *s
	other.namespace = namespace.Name
	s.t.Cleanup(func() {
		other.deletePods()
		assert.NoError(s.t, s.client.CoreV1().Namespaces().Delete(s.ctx, other.namespace, metav1.DeleteOptions{}))
	})
	return &other
}

// prepareSituations has the L4 of node-b held by another namespace, taints the GPUs of node-c,
// and makes users and quotas.
func (s *suite) prepareSituations(other *suite) {
	s.t.Helper()
	for i := range 4 {
		other.gpuPodAt(nodeB, fmt.Sprintf("l4-%d", i), classWhole, "")
	}
	other.waitRunning("l4-0", "l4-1", "l4-2", "l4-3")
	s.apply(fmt.Sprintf(situationObjects, s.namespace, names.PoolName(nodeC)))
	s.t.Cleanup(func() {
		// What creates pods goes before the pods.
		_, _ = s.try("kubectl", "-n", s.namespace, "delete", "deployments,statefulsets,jobs", "--all", "--cascade=foreground", "--timeout=1m")
		_, _ = s.try("kubectl", "delete", "--ignore-not-found", "--wait=false", "clusterrolebinding/e2e-why-user", "clusterrolebinding/e2e-why-user-nodes", "devicetaintrule/e2e-why-fan")
	})
}

// situationObjects are what situations need. Only what they name is limited by the quotas.
const situationObjects = `
apiVersion: v1
kind: ResourceQuota
metadata: {name: none, namespace: %[1]s}
spec: {hard: {requests.nvidia.com/mig-7g.80gb: "0"}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: no-claims, namespace: %[1]s}
spec: {hard: {gpu-mig-4g-40gb.tranche.dev.deviceclass.resource.k8s.io/devices: "0"}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: users, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: trusted}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-why-user}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tranche-user}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: trusted}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-why-user-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tranche-user-nodes}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: trusted}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: e2e-why-fan}
spec:
  deviceSelector: {driver: gpu.tranche.dev, pool: %[2]s}
  taint: {key: example.com/fan, effect: NoSchedule}
`

// requireTaintRules skips the test on Kubernetes 1.36, which has no DeviceTaintRules in resource.k8s.io/v1.
func (s *suite) requireTaintRules() {
	s.t.Helper()
	served, err := s.client.Discovery().ServerResourcesForGroupVersion("resource.k8s.io/v1")
	require.NoError(s.t, err)
	if !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == "devicetaintrules" }) {
		s.t.Skip("left out: this Kubernetes does not serve DeviceTaintRules in resource.k8s.io/v1")
	}
}

// apply applies objects to the namespace of the test, unless they name another one.
func (s *suite) apply(objects string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "objects.yaml")
	require.NoError(s.t, os.WriteFile(file, []byte(objects), 0o600))
	s.kubectl("apply", "-n", s.namespace, "-f", file)
}

// ask runs kubectl tranche why.
func (s *suite) ask(x situation) (a answered, text string, err error) {
	s.t.Helper()
	asked := x.asked
	if asked == "" {
		asked = "pod/" + x.name
	}
	args := []string{"tranche", "why", asked, "-n", s.namespace, "-o", "json"}
	if x.as != "" {
		args = append(args, "--as", x.as)
	}
	text, err = s.try("kubectl", args...)
	if failed := json.NewDecoder(strings.NewReader(text)).Decode(&a); failed != nil && err == nil {
		err = failed
	}
	return a, text, err
}

// requireAnswer waits until `why` gives the answer.
func (s *suite) requireAnswer(x situation) {
	s.t.Helper()
	s.eventually("why "+x.name+" says "+x.state, func() (bool, string) {
		a, text, err := s.ask(x)
		if a.State == "" && err != nil {
			return x.state == "" && containsAll(text, x.says), text
		}
		// JSON escapes < and >, which no answer has.
		return a.State == x.state && containsAll(text, x.says), text
	})
}

// requireEvents checks the controller's events: typed, one for each answer, without names of others.
func (s *suite) requireEvents(others string) {
	s.t.Helper()
	for pod, reason := range map[string]string{
		"held": names.EventDevicesHeld, "no-such-profile": names.EventNoSuchDevice, "no-class": names.EventRequestInvalid,
		"no-template": names.EventClaimNotCreated, "node-selector": names.EventNodesExcluded, "tainted": names.EventDevicesTainted,
		"selector-fails": names.EventSelectorFails,
	} {
		s.waitPodEvent(pod, reason, "kubectl tranche why "+pod)
	}
	list, err := s.client.CoreV1().Events(s.namespace).List(s.ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	told := map[string]int{}
	for i := range list.Items {
		if e := &list.Items[i]; e.ReportingController == names.ControllerName {
			assert.NotContains(s.t, e.Message, others)
			assert.NotContains(s.t, e.Message, "l4-")
			assert.NotContains(s.t, []string{"gate", "running", "no-devices"}, e.InvolvedObject.Name, e.Message)
			told[e.InvolvedObject.Name+" "+e.Reason]++
		}
	}
	for what, n := range told {
		assert.Equal(s.t, 1, n, what)
	}
}

// requireLateTemplate creates the template that a pod waits for: the pod runs.
func (s *suite) requireLateTemplate() {
	s.t.Helper()
	s.template("late", devices(request(class1g10gb, "")))
	s.eventually("why says how to have the claim created", func() (bool, string) {
		a, text, _ := s.ask(situation{name: "late-template"})
		created := a.State != string(why.ClaimMissing) // it may have been tried just now
		return created || strings.Contains(text, "kubectl annotate pod late-template"), text
	})
	s.kubectl("annotate", "pod", "late-template", "-n", s.namespace, "--overwrite", "retried=now")
	s.waitRunning("late-template")
	s.requireAnswer(situation{name: "late-template", state: string(why.Running)})
}

// requireNodeSituations taints and cordons a node, which concerns all pods.
func (s *suite) requireNodeSituations() {
	s.t.Helper()
	s.t.Cleanup(func() {
		_, _ = s.try("kubectl", "uncordon", nodeA)
		_, _ = s.try("kubectl", "taint", "node", nodeA, "e2e-why-")
	})
	s.kubectl("taint", "node", nodeA, "e2e-why=yes:NoSchedule")
	onA := func(s *suite, name string) { s.gpuPodAt(nodeA, name, class1g10gb, "") }
	onA(s, "node-tainted")
	s.requireAnswer(situation{name: "node-tainted", state: string(why.NoRoom), says: []string{"NodesExcluded", "e2e-why=yes:NoSchedule"}})
	s.requireAnswer(situation{name: "node-tainted", as: "tenant", state: string(why.NoRoom), says: []string{"NodesExcluded"}})
	s.kubectl("taint", "node", nodeA, "e2e-why-")
	s.waitRunning("node-tainted")
	s.kubectl("cordon", nodeA)
	onA(s, "node-cordoned")
	s.requireAnswer(situation{name: "node-cordoned", state: string(why.NoRoom), says: []string{"the node is cordoned", "kubectl uncordon node-a"}})
	s.kubectl("uncordon", nodeA)
	s.waitRunning("node-cordoned")
}

// pod makes a pod that may be changed.
func pod(claims []corev1.PodResourceClaim, change ...func(*corev1.PodSpec)) func(*suite, string) {
	return func(s *suite, name string) {
		s.t.Helper()
		p := newPod(name, claims...)
		for _, f := range change {
			f(&p.Spec)
		}
		s.create(p)
	}
}

// asking makes a pod that asks for devices with a template of its own.
func asking(spec resourceapi.DeviceClaim, change ...func(*corev1.PodSpec)) func(*suite, string) {
	return func(s *suite, name string) {
		s.t.Helper()
		s.template(name, spec)
		pod([]corev1.PodResourceClaim{fromTemplate(name)}, change...)(s, name)
	}
}

// smallest is a claim for one 1g.10gb.
func smallest() resourceapi.DeviceClaim { return devices(request(class1g10gb, "")) }

func on(node string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{corev1.LabelHostname: node} }
}

// claim makes a claim for one 1g.10gb.
func (s *suite) claim(name string) {
	s.t.Helper()
	_, err := s.client.ResourceV1().ResourceClaims(s.namespace).Create(s.ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceClaimSpec{Devices: smallest()},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(s.t, err)
	}
}

// tenantSituations are what users see who may not see everything.
func tenantSituations(others string) []situation {
	return []situation{
		{name: "tenant-own", as: "tenant", asked: "pod/no-such-profile", state: string(why.NoRoom), says: []string{"NoSuchDevice"}},
		// The holders are in another namespace, and nodes are hidden: only the controller's event tells.
		{name: "tenant-told", as: "tenant", asked: "pod/held", state: string(why.NoRoom), says: []string{`"reason": "DevicesHeld"`, "according to Tranche's controller", "resourceclaims.resource.k8s.io"}},
		{name: "tenant-excluded", as: "tenant", asked: "pod/node-selector", state: string(why.NoRoom), says: []string{"NodesExcluded", "according to Tranche's controller", "you are not allowed to list nodes"}},
		{name: "trusted-excluded", as: "trusted", asked: "pod/node-selector", state: string(why.NoRoom), says: []string{"NodesExcluded", "disk=ssd"}},
		{name: "tenant-running", as: "tenant", asked: "pod/running", state: string(why.Running)},
		{name: "viewer", as: "viewer", asked: "pod/held", state: string(why.NoRoom), says: []string{"according to Tranche's controller", names.EventDevicesHeld, "deviceclasses.resource.k8s.io", "not allowed to list", "kubectl create clusterrolebinding tranche-user-viewer --clusterrole=tranche-user --user=viewer\n"}},
		{name: "viewer-extended", as: "viewer", asked: "pod/extended", state: string(why.Unknown), says: []string{"Without the DeviceClasses"}},
		{name: "stranger", as: "stranger", asked: "pod/held", says: []string{"you may not get pods in the namespace", "kubectl create rolebinding tranche-user-namespace-stranger --clusterrole=tranche-user-namespace --user=stranger -n "}},
		{name: "stranger-job", as: "stranger", asked: "job/job-waits", says: []string{"you may not get the Job job-waits"}},
		{name: "nobody", as: "tenant", asked: "pod/" + others, state: string(why.Absent), says: []string{"There is no pod"}},
	}
}
