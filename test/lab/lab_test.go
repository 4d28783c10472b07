package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tranche-dev/tranche/test/controlplane"
)

// The end-to-end tests (test/e2e) show that the lab does what a cluster does. Here is what they
// would not notice.

// childVariable makes TestProgramsEndWithTheProcess start programs and wait to be killed.
const childVariable = "TRANCHE_LAB_CHILD"

// The programs of a cluster end with the process that has started them, also when it is killed: when
// a test times out, nobody calls Stop.
func TestProgramsEndWithTheProcess(t *testing.T) {
	assets := os.Getenv(AssetsVariable)
	if assets == "" {
		t.Skip(AssetsVariable + " names no folder with the programs of Kubernetes: make test-unit does")
	}
	if os.Getenv(childVariable) != "" {
		startAndWait(t, assets)
	}
	dir, err := os.MkdirTemp("", "child") // a short path, for sockets
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), childVariable+"=1", "TMPDIR="+dir)
	child.Stderr, child.SysProcAttr = os.Stderr, controlplane.EndWithThis()
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	var pids []int
	require.NoError(t, json.NewDecoder(out).Decode(&pids))
	require.Len(t, pids, 4)
	for _, pid := range pids {
		require.True(t, runs(pid))
	}
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait(), "it was killed")
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !runs(pid) }, 10*time.Second, 10*time.Millisecond, "process %d of %v", pid, pids)
	}
}

// startAndWait starts a cluster's programs, writes their process ids and waits until it is killed.
func startAndWait(t *testing.T, assets string) {
	t.Helper()
	c, err := newCluster(Options{Assets: assets})
	require.NoError(t, err)
	require.NoError(t, c.startAPI(t.Context()))
	require.NoError(t, c.startPrograms(t.Context()))
	var pids []int
	for _, name := range []string{apiServer, etcd} {
		pid, err := c.pid(name)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	for _, p := range c.programs {
		pids = append(pids, p.Process.Pid)
	}
	require.NoError(t, json.NewEncoder(os.Stdout).Encode(pids))
	select {}
}

// runs reports whether there is a process that has not ended.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	var (
		id            int
		program, what string
	)
	_, err = fmt.Sscan(string(text), &id, &program, &what)
	return err == nil && what != "Z"
}

// A claim that pods share is released with the last of them. Here, no plugin is there to release it.
func TestSharedClaimsAreReleasedWithTheLastPod(t *testing.T) {
	k := &kubelet{held: map[types.UID]map[types.UID]*preparedClaim{
		"first":  {"shared": {ref: &drapb.Claim{Uid: "shared"}}},
		"second": {"shared": {ref: &drapb.Claim{Uid: "shared"}}},
	}}
	require.NoError(t, k.release(t.Context(), "first"))
	require.NotContains(t, k.held, types.UID("first"))
	require.ErrorContains(t, k.release(t.Context(), "second"), "not registered")
	require.Contains(t, k.held, types.UID("second"), "it is tried again")
}
