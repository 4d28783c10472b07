package e2e

import (
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
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
)

// The JobSet of demo/job, with JobSet's controller and the commands of the README: its pods have GPUs of two
// nodes at the same time, and it completes. Each takes four GPUs in place of eight: the cluster has no two
// nodes with eight of NVIDIA's.
func TestJobSet(t *testing.T) {
	s := startAtNight(t)
	const namespace = "demo-job"
	s.installProject("jobset")
	s.gpuPods("holder", 4, classWhole)
	s.waitAllRunning(4)
	manifest := string(withBusybox(t, "job", []byte(fileText(filepath.Join(repository, jobSet)))))
	require.Contains(t, manifest, "count: 8")
	file := filepath.Join(t.TempDir(), "jobset.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(manifest, "count: 8", "count: 4", 1)), 0o600))
	s.kubectl("create", "namespace", namespace)
	t.Cleanup(func() { s.kubectl("delete", "--ignore-not-found", "namespace", namespace) })
	at := slices.IndexFunc(blocks("job"), func(block string) bool { return strings.Contains(block, jobSet) })
	require.NotEqual(t, -1, at)
	apply, wait, _ := strings.Cut(strings.ReplaceAll(blocks("job")[at], jobSet, file), "\n")
	s.run(apply)

	var pods map[string]*corev1.Pod
	s.eventually("two pods run", func() (bool, string) {
		pods = s.demoPods(namespace)
		return len(pods) == 2, fmt.Sprintf("there are %d", len(pods))
	})
	gpus := map[string]int{}
	for _, pod := range pods {
		for _, device := range s.claims(pod)[0].Status.Allocation.Devices.Results {
			gpus[device.Pool]++
		}
	}
	assert.Equal(t, map[string]int{names.PoolName(nodeA): 4, names.PoolName(nodeB): 4}, gpus)
	assert.Contains(t, s.kubectl("tranche", "why", "job/train-workers-0", "-n", namespace), "run")
	for name := range pods {
		s.exec(namespace, name, "main", "touch", "/done")
	}
	assert.Contains(t, s.run(wait), "TRANCHE_DEVICE_")
	s.kubectl("delete", "-f", file)
	s.deletePods()
	s.requireNothingLeft()
}

// group creates a PodGroup whose pods start together, and its pods. A claim that the group names as well is
// one for all of them.
func (s *suite) group(name, template string, together bool, change ...func(*corev1.PodSpec)) (pods []string) {
	s.t.Helper()
	spec := schedulingv1beta1.PodGroupSpec{SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}}}
	claim := fromTemplate(template)
	if together {
		spec.ResourceClaims = []schedulingv1beta1.PodGroupResourceClaim{{Name: claim.Name, ResourceClaimTemplateName: claim.ResourceClaimTemplateName}}
	}
	_, err := s.client.SchedulingV1beta1().PodGroups(s.namespace).Create(s.ctx, &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	for i := range 2 {
		pod := newPod(fmt.Sprintf("%s-%d", name, i), claim)
		pod.Labels = map[string]string{"group": name}
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(name)}
		for _, f := range change {
			f(&pod.Spec)
		}
		s.create(pod)
		pods = append(pods, pod.Name)
	}
	return pods
}

// Claims that are reserved for a PodGroup, and not for its pods. The cluster has the feature gates GenericWorkload
// and DRAWorkloadResourceClaims, and a driver that limits memory by control group.
func TestPodGroups(t *testing.T) {
	s := startAlone(t)

	// Each pod has a claim of its own: nothing is different, but that the pods start together.
	s.template("partition", devices(request(classPartition, "")))
	apart := s.group("apart", "partition", false, func(p *corev1.PodSpec) {
		p.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"group": "apart"}},
		}}}}
	})
	s.waitRunning(apart...)
	assert.NotEqual(t, s.pod(apart[0]).Spec.NodeName, s.pod(apart[1]).Spec.NodeName)

	// One partition for all pods: it is there as long as one of them.
	s.template("small", devices(request(class1g10gb, "")))
	one := s.group("one", "small", true)
	s.waitRunning(one...)
	claim := s.claims(s.pod(one[0]))[0]
	assert.Equal(t, claim.UID, s.claims(s.pod(one[1]))[0].UID)
	require.Len(t, claim.Status.ReservedFor, 1)
	assert.Equal(t, "podgroups", claim.Status.ReservedFor[0].Resource)
	s.requireSees(s.pod(one[1]), "main", claim.Status.Allocation.Devices.Results[0], "1g.10gb")
	user := "podgroups.scheduling.k8s.io/one"
	assert.Contains(t, s.kubectl("tranche", "why", "resourceclaim/"+claim.Name, "-n", s.namespace), user)
	assert.Contains(t, s.kubectl("tranche", "-o", "yaml"), "resource: podgroups")

	// The file by which its containers start is written again.
	file := cdiDir + "/gpu.tranche.dev-claim_" + string(claim.UID) + ".json"
	s.onNode(nodeA, "rm", file)
	s.eventually("the CDI file of the claim is there again", func() (bool, string) {
		text, err := s.tryOnNode(nodeA, "test", "-s", file)
		return err == nil, text
	})

	s.delete(one[0])
	assert.Equal(t, corev1.PodRunning, s.pod(one[1]).Status.Phase)
	s.delete(one[1])
	s.deleteGroup("one", claim)

	// A share for all pods is divided among them.
	s.template("share", devices(shareRequest(classMemoryShare, "", amounts{"memory": "2000Mi"})))
	shared := s.group("shared", "share", true)
	s.waitRunning(shared...)
	for _, name := range shared {
		assert.EqualValues(t, 1000<<20, s.memoryLimitOf(s.pod(name)).Hard, name)
	}
	claim = s.claims(s.pod(shared[0]))[0]
	s.delete(shared...)
	s.deleteGroup("shared", claim)
	s.delete(apart...)
	s.requireNothingLeft()
}

// deleteGroup deletes a PodGroup, and waits until its claim has no device.
func (s *suite) deleteGroup(name string, claim *resourceapi.ResourceClaim) {
	s.t.Helper()
	require.NoError(s.t, s.client.SchedulingV1beta1().PodGroups(s.namespace).Delete(s.ctx, name, metav1.DeleteOptions{}))
	s.eventually("the claim of PodGroup "+name+" is gone", func() (bool, string) {
		_, err := s.client.ResourceV1().ResourceClaims(s.namespace).Get(s.ctx, claim.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}
