package e2e

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
)

const kueueNamespace = "demo-kueue"

// installProject installs Kueue or JobSet until the test ends: their webhooks are in the way of tests that
// stop nodes.
func (s *suite) installProject(name string) {
	s.t.Helper()
	s.uninstallAtEnd(name)
	s.run("test/project.sh " + name + " .cluster")
}

func (s *suite) uninstallAtEnd(name string) {
	s.t.Cleanup(func() { s.run("test/project.sh " + name + " .cluster uninstall") })
}

// Jobs and a pod use up the quota, by memory and by profile; what pods request for the scheduler
// is not charged. Others wait, one of higher priority preempts, and what is released is given to
// those that wait.
func checkKueue(s *suite, _ map[string]*corev1.Pod) {
	s.waitJobs("evaluate", "notebook", "serve", "simulate", "train")
	folder := filepath.Join(repository, "demo", "kueue")
	s.kubectl("apply", "--validate=strict", "-f", filepath.Join(folder, "pod"))
	first := []string{"evaluate", "notebook", "serve", "shell", "simulate", "train"}
	pods := s.waitJobs(first...)
	assert.Len(s.t, pods["serve"], 2)
	train := pods["train"][0]
	s.requireSees(train, "main", s.allocated(train, ""), "3g.40gb")
	charges := s.workloads(".status.admission.podSetAssignments[0].resourceUsage")
	assert.Equal(s.t, map[string]string{
		"train":    `{"gpu-memory":"40448Mi"}`,
		"simulate": `{"gpu-memory":"98296Mi"}`,
		"serve":    `{"mig-1g-10gb":"2"}`,
		"evaluate": `{"xcp-cpx":"1"}`,
		"notebook": `{"shared-gpu-memory":"12Gi"}`,
		"shell":    `{"mig-1g-10gb":"1"}`,
	}, charges)
	assert.Contains(s.t, pods["shell"][0].Spec.Containers[0].Resources.Requests, corev1.ResourceName(names.ResourceGPUCompute))

	s.kubectl("apply", "--validate=strict", "-f", filepath.Join(folder, "waits"))
	s.kubectl("apply", "--validate=strict", "-f", filepath.Join(folder, "never"))
	s.waitWorkloads(map[string]string{
		"train-more":    "insufficient unused quota for gpu-memory",
		"serve-more":    "insufficient unused quota for mig-1g-10gb",
		"notebook-more": "insufficient unused quota for shared-gpu-memory",
		"alternatives":  "FirstAvailable device selection is not supported",
		"by-claim":      "does not support use of resource claims",
	})
	s.waitJobs(first...)

	urgent := filepath.Join(folder, "urgent")
	s.kubectl("apply", "--validate=strict", "-f", urgent)
	s.waitJobs("evaluate", "notebook", "serve", "shell", "simulate", "urgent")
	s.kubectl("delete", "-f", urgent)
	s.waitJobs(first...)

	s.kubectl("-n", kueueNamespace, "delete", "job", "serve", "notebook")
	s.waitJobs("evaluate", "notebook-more", "serve-more", "shell", "simulate", "train")
}

// waitJobs waits until the pods of these jobs, and those without a job with these names, are ready
// and there are no others, and returns them by name.
func (s *suite) waitJobs(wanted ...string) map[string][]*corev1.Pod {
	s.t.Helper()
	running := map[string][]*corev1.Pod{}
	slices.Sort(wanted)
	s.eventually("jobs run: "+strings.Join(wanted, " "), func() (bool, string) {
		clear(running)
		pods, err := s.client.CoreV1().Pods(kueueNamespace).List(s.ctx, metav1.ListOptions{})
		require.NoError(s.t, err)
		ready := true
		for i := range pods.Items {
			job := cmp.Or(pods.Items[i].Labels[batchv1.JobNameLabel], pods.Items[i].Name)
			running[job] = append(running[job], &pods.Items[i])
			ready = ready && isReady(&pods.Items[i])
		}
		if ready && slices.Equal(slices.Sorted(maps.Keys(running)), wanted) {
			return true, ""
		}
		described, _ := s.try("kubectl", "-n", kueueNamespace, "get", "workloads,pods")
		return false, described
	})
	return running
}

// waitWorkloads waits until Kueue says of the jobs that they have no quota, and why.
func (s *suite) waitWorkloads(wanted map[string]string) {
	s.t.Helper()
	s.eventually("jobs wait", func() (bool, string) {
		said := s.workloads(`.status.conditions[?(@.type=="QuotaReserved")].message`)
		for job, why := range wanted {
			if !strings.Contains(said[job], why) {
				return false, job + ": " + said[job]
			}
		}
		return true, ""
	})
}

// workloads has one field of each of Kueue's Workloads, by job.
func (s *suite) workloads(field string) map[string]string {
	s.t.Helper()
	out := s.kubectl("-n", kueueNamespace, "get", "workloads", "-o",
		`jsonpath={range .items[*]}{.metadata.ownerReferences[0].name}={`+field+`}{"\n"}{end}`)
	fields := map[string]string{}
	for line := range strings.Lines(out) {
		job, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		fields[job] = value
	}
	return fields
}
