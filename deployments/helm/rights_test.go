package helm_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// call is where the code makes use of rights: a file, and words of it.
type call struct {
	// rights are group/resource with the verbs; the core's group is empty. What ends in
	// "here" is for the release's namespace only.
	rights string
	file   string
	words  string
}

// What every right is for. Informers list and watch.
var (
	controllerCalls = []call{
		{"tranche.dev/gpunodes get", "pkg/controller/reconciler.go", "r.Reader.Get(ctx, client.ObjectKey{Name: name}, &gpuNode)"},
		{"tranche.dev/gpunodes list watch", "pkg/controller/setup.go", "For(&v1beta1.GPUNode{})"},
		{"tranche.dev/gpunodes patch", "pkg/controller/adopt/adopt.go", "a.Client.Patch(ctx, g, patch"},
		{"tranche.dev/gpunodes/status patch", "pkg/controller/reconciler.go", "r.Client.Status().Patch(ctx, gpuNode"},
		{"tranche.dev/gpunodes/status patch", "pkg/controller/plans/admission.go", "d.Client.Status().Patch(ctx, next"},
		{"tranche.dev/partitionplans get", "pkg/controller/plans/decider.go", "d.Reader.Get(ctx, client.ObjectKeyFromObject(p.PartitionPlan), &live)"},
		{"tranche.dev/partitionplans list watch", "pkg/controller/plans.go", "&v1beta1.PartitionPlan{}"},
		{"tranche.dev/partitionplans/status patch", "pkg/controller/plans/write.go", "d.Client.Status().Patch(ctx, next"},
		{"tranche.dev/partitionprofiles list watch", "pkg/controller/setup.go", "Watches(&v1beta1.PartitionProfile{}"},
		{"tranche.dev/partitionprofiles get", "pkg/controller/reconciler.go", "r.choice(ctx, true, gpuNode, node, said)"},
		{"tranche.dev/partitionprofiles create", "pkg/controller/chartprofiles.go", "p.Client.Create(ctx, made)"},
		{"tranche.dev/partitionprofiles update", "pkg/controller/chartprofiles.go", "p.Client.Update(ctx, changed)"},
		{"tranche.dev/partitionprofiles delete", "pkg/controller/chartprofiles.go", "p.Client.Delete(ctx, there"},
		{"/nodes get", "pkg/controller/pause.go", "r.Reader.Get(ctx, client.ObjectKey{Name: name}, &node)"},
		{"/nodes list watch", "pkg/controller/setup.go", "Watches(&corev1.Node{}"},
		{"/nodes patch", "pkg/controller/pause.go", "r.Client.Patch(ctx, &node, patch)"},
		{"resource.k8s.io/resourceclaims get", "pkg/controller/drain/holders.go", "v.drainer.Reader.Get(ctx, name, &c)"},
		{"resource.k8s.io/resourceclaims list watch", "pkg/controller/setup.go", "Watches(&resourceapi.ResourceClaim{}"},
		{"resource.k8s.io/deviceclasses list watch", "pkg/controller/setup.go", "&resourceapi.DeviceClass{}"},
		{"resource.k8s.io/resourceslices list", "pkg/controller/verify.go", "r.Reader.List(ctx, &found"},
		{"/pods get", "pkg/controller/drain/pods.go", "var pod corev1.Pod"},
		{"/pods list", "pkg/controller/drain/pods.go", "var pods corev1.PodList"},
		{"/pods delete", "pkg/controller/drain/evict.go", "d.Client.Delete(ctx, pod"},
		{"/pods/eviction create", "pkg/controller/drain/evict.go", `SubResource("eviction").Create(ctx, pod`},
		{"/pods list watch", "pkg/controller/waiting/setup.go", "cache.ByObject{&corev1.Pod{}"},
		{"resource.k8s.io/resourceclaims get", "pkg/controller/waiting/pods.go", "e.get(ctx, pod.Namespace, *name, &claim)"},
		{"resource.k8s.io/resourceclaimtemplates get", "pkg/controller/waiting/pods.go", "&template)"},
		{"resource.k8s.io/deviceclasses list watch", "pkg/controller/waiting/setup.go", "&resourceapi.DeviceClass{}, sliceMetadata()"},
		{"resource.k8s.io/devicetaintrules list watch", "pkg/controller/waiting/setup.go", "&resourceapi.DeviceTaintRule{})"},
		{"resource.k8s.io/resourceslices list watch", "pkg/controller/waiting/setup.go", `WithKind("ResourceSlice")`},
		{"events.k8s.io/events create patch", "pkg/controller/waiting/events.go", "e.Client.Create(ctx, event)"},
		{"/namespaces list", "pkg/controller/defragment/read.go", "corev1.NamespaceList"},
		{"batch/jobs get", "pkg/controller/defragment/read.go", "d.Reader.Get(ctx, name, &job)"},
		{"resource.k8s.io/resourceclaimtemplates list", "pkg/controller/defragment/read.go", "resourceapi.ResourceClaimTemplateList"},
		{"resource.k8s.io/devicetaintrules list", "pkg/controller/defragment/read.go", "resourceapi.DeviceTaintRuleList"},
		{"policy/poddisruptionbudgets list", "pkg/controller/defragment/read.go", "policyv1.PodDisruptionBudgetList"},
		{"/namespaces list watch", "pkg/controller/gpurequests/setup.go", "For(&corev1.Namespace{})"},
		{"resource.k8s.io/resourceclaimtemplates list watch", "pkg/controller/gpurequests/setup.go", "Watches(&resourceapi.ResourceClaimTemplate{}"},
		{"tranche.dev/gpuresourcemaps list watch", "pkg/controller/gpurequests/setup.go", "Watches(&v1beta1.GPUResourceMap{}"},
		{"tranche.dev/gpuresourcemaps create", "pkg/controller/gpurequests/reconciler.go", "r.Client.Create(ctx, &v1beta1.GPUResourceMap{"},
		{"tranche.dev/gpuresourcemaps update", "pkg/controller/gpurequests/reconciler.go", "r.Client.Update(ctx, written)"},
		{"tranche.dev/gpuresourcemaps delete", "pkg/controller/gpurequests/reconciler.go", "r.Client.Delete(ctx, written)"},
		{"/pods list watch", "pkg/controller/claimtemplates/setup.go", "Watches(&corev1.Pod{}"},
		{"/namespaces list watch", "pkg/controller/claimtemplates/setup.go", "For(&corev1.Namespace{})"},
		{"resource.k8s.io/resourceclaimtemplates list watch", "pkg/controller/claimtemplates/setup.go", "Watches(&resourceapi.ResourceClaimTemplate{}"},
		{"resource.k8s.io/resourceclaimtemplates create", "pkg/controller/claimtemplates/reconciler.go", "r.Client.Create(ctx, made)"},
		{"resource.k8s.io/resourceclaimtemplates delete", "pkg/controller/claimtemplates/reconciler.go", "r.Client.Delete(ctx, old"},
		{"events.k8s.io/events create patch", "pkg/controller/setup.go", `mgr.GetEventRecorder(names.ControllerName)`},
		{"/events create patch here", "cmd/tranche-controller/main.go", "LeaderElection:"},
		{"coordination.k8s.io/leases create get update here", "cmd/tranche-controller/main.go", "LeaderElectionID:"},
	}
	webCalls = []call{
		{"resource.k8s.io/resourceslices list watch", "pkg/web/live/follow.go", "read.Slices, s.slices"},
		{"resource.k8s.io/resourceclaims list watch", "pkg/web/live/follow.go", "read.Claims, s.claims"},
		{"resource.k8s.io/deviceclasses list watch", "pkg/web/live/follow.go", "read.Classes, s.classes"},
		{"resource.k8s.io/devicetaintrules list watch", "pkg/web/live/follow.go", "read.Rules, s.rules"},
		{"/nodes list watch", "pkg/web/live/follow.go", "read.Nodes, s.nodes"},
		{"/pods list watch", "pkg/web/live/follow.go", "read.Pods, s.pods"},
		{"tranche.dev/gpunodes list watch", "pkg/web/live/follow.go", "read.GPUNodes, s.gpuNodes"},
		{"tranche.dev/partitionplans list watch", "pkg/web/live/follow.go", "read.Plans, s.plans"},
		{"authentication.k8s.io/tokenreviews create", "pkg/web/signin/guard.go", "TokenReviews().Create(ctx"},
		{"authorization.k8s.io/subjectaccessreviews create", "pkg/web/signin/viewer.go", "SubjectAccessReviews().Create(ctx"},
	}
	pluginCalls = []call{
		{"resource.k8s.io/resourceclaims get", "pkg/node/reconcile.go", "ResourceClaims(namespace).Get(ctx, name"},
		{"resource.k8s.io/resourceclaims/status patch", "pkg/node/telemetry/claimstatus.go", "ApplyStatus(ctx, status"},
		{"resource.k8s.io/resourceclaims/driver associated-node:patch", "pkg/node/telemetry/claimstatus.go", "ApplyStatus(ctx, status"},
		{"resource.k8s.io/resourceslices list watch create update delete", "pkg/node/node.go", "kubeletplugin.Start("},
		{"/nodes get", "pkg/node/inventory/watchowners.go", "client.CoreV1().Nodes().Get(ctx, name"},
		{"/nodes list watch", "pkg/node/inventory/node.go", "Nodes().Informer()"},
		{"/nodes patch", "pkg/node/inventory/labels.go", "Nodes().Patch(ctx"},
		{"/nodes/status patch", "pkg/node/inventory/resources.go", "Nodes().Patch(ctx"},
		{"events.k8s.io/events create patch", "pkg/node/telemetry/events.go", "events.EventSinkImpl{Interface: client.EventsV1()}"},
		{"tranche.dev/gpunodes list watch", "pkg/node/follow/gpunodes.go", "client.ListWatch(nodes, name)"},
		{"tranche.dev/gpunodes create", "pkg/node/follow/follow.go", "f.Nodes.Create(ctx"},
		{"tranche.dev/gpunodes/status patch", "pkg/node/follow/nodereport.go", "nodes.Patch(ctx, name, types.ApplyPatchType"},
		{"kmm.sigs.x-k8s.io/nodemodulesconfigs get", "pkg/hardware/kmod/kmm.go", "Resource(NodeModulesConfigs).Get(ctx"},
		{"kmm.sigs.x-k8s.io/nodemodulesconfigs delete", "pkg/hardware/kmod/kmm.go", "Resource(NodeModulesConfigs).Delete(ctx"},
		{"apps/daemonsets get here", "pkg/node/uninstall.go", "DaemonSets(namespace).Get(ctx"},
	}
	uninstallCalls = []call{
		{"resource.k8s.io/resourceclaims list", "pkg/uninstall/holders.go", "ResourceClaims(metav1.NamespaceAll).List(ctx"},
		{"resource.k8s.io/resourceslices list", "pkg/uninstall/run.go", "find(ctx, slicesKind"},
		{"resource.k8s.io/resourceslices delete", "pkg/uninstall/run.go", "deleteFound(ctx, slicesKind"},
		{"/nodes get", "pkg/uninstall/leftovers.go", "nodes.Get(ctx, name"},
		{"/nodes list", "pkg/uninstall/leftovers.go", "Nodes().List(ctx"},
		{"/nodes patch", "pkg/uninstall/leftovers.go", "nodes.Patch(ctx, name"},
		{"tranche.dev/gpunodes list", "pkg/uninstall/refuse.go", "GPUNodes().List(ctx"},
		{"tranche.dev/gpunodes delete", "pkg/uninstall/leftovers.go", "deleteFound(ctx, gpuNodesKind"},
		{"tranche.dev/partitionprofiles list", "pkg/uninstall/leftovers.go", "find(ctx, profilesKind"},
		{"tranche.dev/partitionprofiles delete", "pkg/uninstall/leftovers.go", "deleteFound(ctx, profilesKind"},
		{"tranche.dev/gpuresourcemaps list", "pkg/uninstall/leftovers.go", "find(ctx, mapsKind"},
		{"tranche.dev/gpuresourcemaps delete", "pkg/uninstall/leftovers.go", "deleteFound(ctx, mapsKind"},
		{"resource.k8s.io/resourceclaimtemplates list", "pkg/uninstall/leftovers.go", "find(ctx, templatesKind"},
		{"resource.k8s.io/resourceclaimtemplates delete", "pkg/uninstall/leftovers.go", "deleteFound(ctx, templatesKind"},
		{"apps/daemonsets get here", "pkg/uninstall/run.go", "sets.Get(ctx, c.DaemonSet"},
		{"apps/daemonsets delete here", "pkg/uninstall/run.go", "sets.Delete(ctx, c.DaemonSet"},
		{"apps/deployments delete here", "pkg/uninstall/run.go", "Deployments(c.Namespace).Delete(ctx, name"},
		{"coordination.k8s.io/leases delete here", "pkg/uninstall/leftovers.go", "Leases(c.Namespace).Delete(ctx, name"},
		{"/pods list here", "pkg/uninstall/run.go", "find(ctx, podsKind"},
	}
)

// TestRights holds what the roles allow against the calls in the code: no right is there
// that no call needs. That none is missing is for the end-to-end tests to find.
func TestRights(t *testing.T) {
	everything := []string{"--set", "amd.memoryPartitions.enabled=true,nodeLabels.enabled=true,uninstall.force=true,translate.kai.enabled=true,controller.defragmentation.enabled=true"}
	objects := decode(t, render(t, chart, everything...))
	for name, test := range map[string]struct {
		objects []runtime.Object
		calls   []call
	}{
		"tranche-controller":     {objects, controllerCalls},
		"tranche-kubelet-plugin": {objects, pluginCalls},
		"tranche-uninstall":      {hooks(t, everything...), uninstallCalls},
	} {
		t.Run(name, func(t *testing.T) {
			all := given(named[*rbacv1.ClusterRole](t, test.objects, name).Rules, "")
			maps.Copy(all, given(named[*rbacv1.Role](t, test.objects, name).Rules, " here"))
			assert.Equal(t, neededFor(t, test.calls), all)
		})
	}
	page := decode(t, render(t, chart, "--set", "webPage.enabled=true"))
	assert.Equal(t, neededFor(t, webCalls), given(named[*rbacv1.ClusterRole](t, page, "tranche-web").Rules, ""))

	// What cannot be limited to a name is not, and all else in the namespace is.
	for _, rule := range named[*rbacv1.Role](t, objects, "tranche-controller").Rules {
		assert.True(t, slices.Contains(rule.Verbs, "create") || slices.Equal(rule.ResourceNames, []string{"tranche-controller"}), rule)
	}
}

// neededFor are the rights that calls need, which are still in the code.
func neededFor(t *testing.T, calls []call) map[string]bool {
	t.Helper()
	needed := map[string]bool{}
	for _, c := range calls {
		content, err := os.ReadFile(filepath.Join("../..", c.file))
		require.NoError(t, err)
		assert.True(t, strings.Contains(string(content), c.words), "%s: %s is needed by nothing any more: %q is not there", c.file, c.rights, c.words)
		words := strings.Fields(c.rights)
		here := ""
		if words[len(words)-1] == "here" {
			here, words = " here", words[:len(words)-1]
		}
		for _, verb := range words[1:] {
			needed[words[0]+" "+verb+here] = true
		}
	}
	return needed
}

// given are the rights of rules.
func given(rules []rbacv1.PolicyRule, here string) map[string]bool {
	all := map[string]bool{}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all[fmt.Sprintf("%s/%s %s%s", group, resource, verb, here)] = true
				}
			}
		}
	}
	return all
}
