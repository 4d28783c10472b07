package nodewatch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
)

func TestRunningPods(t *testing.T) {
	const a, b, c, d = "0f8b5d2e-6c1a-4b61-9a6f-2f2f0c9d1e11", "1f8b5d2e-6c1a-4b61-9a6f-2f2f0c9d1e11", "2f8b5d2e-6c1a-4b61-9a6f-2f2f0c9d1e11", "3f8b5d2e-6c1a-4b61-9a6f-2f2f0c9d1e11"
	proc := t.TempDir()
	for pid, groups := range map[string]string{
		"1":     "0::/init.scope\n",
		"20":    "0::/../../kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0f8b5d2e_6c1a_4b61_9a6f_2f2f0c9d1e11.slice/cri-containerd-1234.scope\n",
		"21":    "12:devices:/kubepods/burstable/pod" + b + "/1234\n11:memory:/kubepods/burstable/pod" + b + "/1234\n0::/\n",
		"22":    "0::/kubepods.slice/kubepods-pod2f8b5d2e_6c1a_4b61_9a6f_2f2f0c9d1e11.slice/crio-12.scope/container\n",
		"23":    "0::/user.slice/" + d + "/x" + d + "/kubepods-pod" + d + "0.slice\n",
		"acpi":  "0::/kubepods/pod" + d + "/x\n",
		"24/no": "",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(proc, pid), 0o755))
		if groups != "" {
			require.NoError(t, os.WriteFile(filepath.Join(proc, pid, "cgroup"), []byte(groups), 0o600))
		}
	}
	pod := func(uid string) ledger.Pod { return ledger.Pod{Name: "p", UID: types.UID(uid)} }
	running, err := RunningPods(proc, []ledger.Pod{pod(d), pod(c), pod(b), pod(a), pod("")})
	require.NoError(t, err)
	assert.Equal(t, []ledger.Pod{pod(c), pod(b), pod(a)}, running)

	for pid, uid := range map[int]types.UID{1: "", 20: a, 21: b, 22: c, 24: "", 99: ""} {
		of, err := PodOf(proc, pid)
		require.NoError(t, err, pid)
		assert.Equal(t, uid, of, pid)
	}
	_, err = PodOf(filepath.Join(proc, "none"), 20)
	require.ErrorContains(t, err, "find the pod of process 20")

	running, err = RunningPods(filepath.Join(proc, "none"), nil)
	require.NoError(t, err, "nobody needs to be looked for")
	assert.Empty(t, running)
	_, err = RunningPods(filepath.Join(proc, "none"), []ledger.Pod{pod(a)})
	require.ErrorContains(t, err, "list the processes of the node")
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "25/cgroup"), 0o755))
	_, err = RunningPods(proc, []ledger.Pod{pod(a)})
	require.ErrorContains(t, err, "read which pod process 25 belongs to")
	_, err = PodOf(proc, 25)
	require.ErrorContains(t, err, "read which pod process 25 belongs to")
}
