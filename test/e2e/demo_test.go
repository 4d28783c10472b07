package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// demoChecks has what each folder of demo/ shows.
var demoChecks = map[string]func(*suite, map[string]*corev1.Pod){
	"whole-gpu": func(s *suite, pods map[string]*corev1.Pod) {
		s.requireSeesWhole(pods["whole-gpu"], s.allocated(pods["whole-gpu"], ""))
	},
	"all-gpus":    checkAllGPUs,
	"linked-gpus": checkLinkedGPUs,
	"mig": func(s *suite, pods map[string]*corev1.Pod) {
		first, second := s.allocated(pods["first"], ""), s.allocated(pods["second"], "")
		assert.NotEqual(s.t, first.Device, second.Device)
		assert.Equal(s.t, gpu.OfDevice(first.Device), gpu.OfDevice(second.Device), "two small partitions fit on one GPU")
		s.requireSees(pods["first"], "main", first, "1g.10gb")
		s.requireSees(pods["second"], "main", second, "1g.10gb")
		s.requireInstances(2)
	},
	"device-plugin-pod": func(s *suite, pods map[string]*corev1.Pod) {
		pod := pods["unchanged"]
		s.requireSees(pod, "main", s.allocated(pod, ""), "1g.10gb")
		s.requireInstances(1)
	},
	"two-partitions": func(s *suite, pods map[string]*corev1.Pod) {
		pod := pods["pair"]
		s.requireSees(pod, "large", s.allocated(pod, "large"), "3g.40gb")
		s.requireSees(pod, "small", s.allocated(pod, "small"), "1g.10gb")
		assert.Empty(s.t, s.seen(pod, "sidecar"))
		assert.NotContains(s.t, fmt.Sprint(s.env(pod, "sidecar")), "TRANCHE")
		assert.Equal(s.t, 2, s.machine(nodeA).instances())
	},
	"extended-gpu": func(s *suite, pods map[string]*corev1.Pod) {
		pod := pods["unchanged"]
		s.requireSees(pod, "main", s.allocated(pod, ""), "gpu")
		assert.Zero(s.t, s.machine(nodeA).instances())
	},
	"extended-amd": func(s *suite, pods map[string]*corev1.Pod) {
		s.requireSeesWhole(pods["unchanged"], s.allocated(pods["unchanged"], ""))
		assert.Equal(s.t, nodeC, pods["unchanged"].Spec.NodeName)
	},
	"one-gpu":         checkOneGPU,
	"first-available": checkFirstAvailable,
	"quota":           checkQuota,
	"admin-access":    checkAdminAccess,
	"vectoradd":       checkVectorAdd,
	"notebook":        checkNotebook,
	"job":             checkJob,
	"vllm":            checkVLLM,
	"amd-partition":   checkAMDPartition,
	"amd-one-gpu":     checkAMDOneGPU,
	"amd-switch":      checkAMDSwitch,
	"either-vendor":   checkEitherVendor,
	"kueue":           checkKueue,

	"sharing-half-gpu":          checkShareHalfGPU,
	"sharing-memory":            checkShareMemory,
	"sharing-container":         checkShareContainer,
	"sharing-init-container":    checkShareInitContainer,
	"sharing-two-gpus":          checkShareTwoGPUs,
	"sharing-replicas":          checkShareReplicas,
	"sharing-mig":               checkShareMIG,
	"sharing-mps":               checkShareMPS,
	"sharing-burst":             checkShareBurst,
	"sharing-nvidia-gpu":        checkShareNvidiaGPU,
	"sharing-nvidia-gpu-shared": checkShareNvidiaGPUShared,
	"sharing-quota":             checkShareQuota,

	"translate-kai":  checkTranslateKAI,
	"translate-hami": checkTranslateHAMi,
	"translate-nos":  checkTranslateNos,

	"profile-all-balanced":    checkProfileAllBalanced,
	"profile-cpx-nps4":        checkProfileCPXNPS4,
	"profile-time-sliced":     checkProfileTimeSliced,
	"profile-extended-single": checkProfileExtendedSingle,
	"profile-rollback":        checkProfileRollback,
	"profile-budget":          checkProfileBudget,
	"plan":                    checkPlan,
}

// dayDemos show each way to a GPU once. `make nightly` runs the others.
var dayDemos = []string{
	"admin-access", "amd-partition", "device-plugin-pod", "extended-gpu", "mig", "sharing-container", "sharing-half-gpu",
	"sharing-init-container", "sharing-memory", "sharing-mps", "sharing-nvidia-gpu", "whole-gpu",
}

// The folders of demo/ are applied as they stand, and deleting them destroys
// what was made for them.
func TestDemos(t *testing.T) {
	readmes, err := filepath.Glob(filepath.Join(repository, "demo", "*", "README.md"))
	require.NoError(t, err)
	require.Len(t, readmes, len(demoChecks), "a folder of demo/ has no README, or is gone")
	for _, file := range readmes {
		folder := filepath.Dir(file)
		name := filepath.Base(folder)
		t.Run(name, func(t *testing.T) {
			start := startAtNight
			if slices.Contains(dayDemos, name) {
				start = startOnCluster
			}
			s := start(t)
			require.Contains(t, demoChecks, name, "nothing checks demo/%s: add it to demoChecks", name)
			if project, translated := strings.CutPrefix(name, "translate-"); translated {
				s.waitTranslated(project)
			}
			if first := demoFirst[name]; first != nil {
				first(s)
			}
			s.kubectl("apply", "--dry-run=client", "--validate=strict", "-f", folder)
			s.followDemoProfile(name)
			demo := folder
			folder = standIn(t, name)
			t.Cleanup(func() {
				if t.Failed() {
					s.kubectl("delete", "--ignore-not-found", "-f", folder)
				}
			})
			s.kubectl("apply", "-f", folder)
			pods := s.demoPods("demo-" + name)
			script, shows := readme(t, name)
			if !shows || unscripted[name] != "" {
				script = ""
			}
			switch {
			case folder != demo: // what stands in may end with the script
				demoChecks[name](s, pods)
				s.run(strings.ReplaceAll(script, "demo/"+name+"/", folder+"/"))
			case script != "" && strings.HasPrefix(name, "translate-"): // what a pod has become cannot be changed back
				s.kubectl("delete", "-f", folder)
				s.run(script)
				demoChecks[name](s, s.demoPods("demo-"+name))
			default:
				s.run(script)
				demoChecks[name](s, pods)
			}
			s.kubectl("delete", "--ignore-not-found", "-f", folder)
			s.requireNothingLeft()
		})
	}
	shown, err := os.ReadFile(filepath.Join(repository, "demo", "run.sh"))
	require.NoError(t, err)
	for name := range demoChecks {
		assert.Contains(t, string(shown), name, "demo/run.sh does not show demo/%s", name)
	}
}

var otherImage = regexp.MustCompile(`(?m)^( +)image: [^b].*(?:\n +args: .*)?$`)

// standsIn is what busybox does in the place of images that are not here: what the README's commands ask for.
var standsIn = map[string]string{
	"job":       "until [ -e /done ]; do sleep 1; done; env | grep ^TRANCHE_",
	"notebook":  "echo 'http://127.0.0.1:8888/lab?token=none'; mkdir /www; echo {} >/www/api; exec httpd -f -p 8888 -h /www",
	"vectoradd": "echo Test PASSED; sleep 1000000",
	"vllm":      "mkdir -p /www/v1; echo {} | tee /www/health >/www/v1/models; exec httpd -f -p 8000 -h /www",
}

// standIn is the folder of a demo, or a copy of it with busybox in the place of an image that is not here and
// of its arguments.
func standIn(t *testing.T, name string) string {
	t.Helper()
	folder := filepath.Join(repository, "demo", name)
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	if !otherImage.Match(text) {
		return folder
	}
	text = withBusybox(t, name, text)
	folder = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(files[0])), text, 0o600))
	return folder
}

// withBusybox is a demo's manifest with busybox in the place of an image that is not here.
func withBusybox(t *testing.T, name string, manifest []byte) []byte {
	t.Helper()
	require.Contains(t, standsIn, name)
	return otherImage.ReplaceAll(manifest, fmt.Appendf(nil, "${1}image: busybox:1.35\n${1}command: [sh, -c, %q]", standsIn[name]))
}

// demoPods waits until the pods of a demo are ready and returns them by name.
func (s *suite) demoPods(namespace string) map[string]*corev1.Pod {
	s.t.Helper()
	out := map[string]*corev1.Pod{}
	nudge := s.nudging()
	s.eventually("the pods in "+namespace+" are ready", func() (bool, string) {
		pods, err := s.client.CoreV1().Pods(namespace).List(s.ctx, metav1.ListOptions{})
		require.NoError(s.t, err)
		clear(out)
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp != nil {
				return false, pods.Items[i].Name + " is not gone yet"
			}
			out[pods.Items[i].Name] = &pods.Items[i]
			if !isReady(&pods.Items[i]) {
				nudge(&pods.Items[i])
				described, _ := s.try("kubectl", "-n", namespace, "describe", "pods")
				return false, described
			}
		}
		return len(pods.Items) > 0, "there are none"
	})
	for name, pod := range out {
		for _, claim := range s.claims(pod) {
			assert.Equal(s.t, names.DriverName, claim.Status.Allocation.Devices.Results[0].Driver, name)
		}
	}
	return out
}
