package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/cluster/internal/build"
	"github.com/tranche-dev/tranche/test/cluster/internal/machine"
)

func open(t *testing.T, dir string) *Cluster {
	t.Helper()
	cluster, err := Open(dir, t.Logf)
	require.NoError(t, err)
	return cluster
}

// pretend makes the folder look as if this very process were a machine's first.
func pretend(t *testing.T, cluster *Cluster, name string) {
	t.Helper()
	self, err := machine.Identify(os.Getpid())
	require.NoError(t, err)
	content, err := json.Marshal(self)
	require.NoError(t, err)
	files(t, cluster.path("machines", name), map[string]string{"init.json": string(content)})
}

func TestOptions(t *testing.T) {
	for what, test := range map[string]struct {
		options Options
		want    string
	}{
		"no node":       {Options{}, "at least one node"},
		"bad name":      {Options{Nodes: []string{"Node_A"}}, `"Node_A"`},
		"path":          {Options{Nodes: []string{"../x"}}, `"../x"`},
		"reserved name": {Options{Nodes: []string{"control-plane"}}, "control-plane"},
		"twice":         {Options{Nodes: []string{"a", "b", "a"}}, "given twice"},
		"too many":      {Options{Nodes: make([]string, maxNodes+1)}, "too many"},
		"bad gate":      {Options{Nodes: []string{"a"}, Gates: "X"}, `"X"`},
		"API and nodes": {Options{Nodes: []string{"node-a"}, APIOnly: true}, "has no nodes"},
		"API only":      {Options{APIOnly: true}, ""},
		"good":          {Options{Nodes: []string{"node-a", "b2"}, Gates: "X=true"}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			err := test.options.validate()
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestSettingsSurvive(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	first.settings = settings{Options: Options{Nodes: []string{"node-a"}, Gates: "A=true"}, Port: 1234, Parts: "/parts"}
	require.NoError(t, first.saveSettings())
	require.Equal(t, first.settings, open(t, dir).settings)

	require.NoError(t, os.WriteFile(first.path(settingsFile), []byte(`{"No`), 0o644))
	require.Empty(t, open(t, dir).settings.Nodes, "cut short by a crash: down must still work")
}

func TestClustersInDifferentFoldersDoNotShareCgroups(t *testing.T) {
	one, other := open(t, t.TempDir()), open(t, t.TempDir())
	require.NotEqual(t, one.cgroup(), other.cgroup())
	require.Equal(t, one.cgroup(), open(t, one.dir).cgroup())
	require.Equal(t, one.cgroup()+"/node-a", one.nodeCgroup("node-a"))
}

func TestUpBesideARunningCluster(t *testing.T) {
	cluster := open(t, t.TempDir())
	pretend(t, cluster, controlPlane)
	err := cluster.Up(t.Context(), build.Dir(t.TempDir()), Options{Nodes: []string{"node-a"}})
	require.ErrorContains(t, err, "running already")
	require.ErrorContains(t, err, "cluster down")
}

func TestUpWithoutParts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without root, that is what is said first")
	}
	err := open(t, t.TempDir()).Up(t.Context(), build.Dir(t.TempDir()), Options{Nodes: []string{"node-a"}})
	require.ErrorContains(t, err, "cluster install")
	require.ErrorContains(t, err, "containerd")
}

func TestMachine(t *testing.T) {
	cluster := open(t, t.TempDir())
	_, err := cluster.machine("node-a")
	require.ErrorContains(t, err, "cluster up")

	pretend(t, cluster, "node-a")
	files(t, cluster.path("machines", "node-b"), map[string]string{"init.json": `{"pid": 1, "start": 1, "boot": "another"}`})
	found, err := cluster.machine("node-a")
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), found.Init.Pid)
	_, err = cluster.machine("node-b")
	require.ErrorContains(t, err, `no machine "node-b" runs`)
	require.Equal(t, []string{"node-a"}, cluster.running())
}

// TestDownAfterACrash leaves what is not the cluster's: processes that have
// the number of one of ours from before, and files of others.
func TestDownAfterACrash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".cluster")
	cluster := open(t, dir)
	files(t, dir, map[string]string{
		"machines/node-a/init.json": `{"pid": 1, "start": 1, "boot": "another"}`,
		"machines/node-b/init.json": `{"pi`,
		"pki/ca.crt":                "", "kubeconfig": "", settingsFile: "{",
		"logs/etcd.log": "why", "mine": "not the cluster's",
	})
	require.NoError(t, cluster.Down(true))
	require.Equal(t, "why", content(t, cluster.logFile(etcd)))
	require.NoError(t, cluster.Down(false))
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "mine")}, left)

	require.NoError(t, os.Remove(filepath.Join(dir, "mine")))
	require.NoError(t, cluster.Down(false))
	require.NoDirExists(t, dir)
	require.NoError(t, cluster.Down(false), "where there is nothing")
}

func TestBootIDsDiffer(t *testing.T) {
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, newBootID())
	require.NotEqual(t, newBootID(), newBootID())
}

func TestLogTail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.log")
	require.NoError(t, os.WriteFile(file, []byte("1\n2\n3\n"), 0o644))
	require.Equal(t, "the end of x.log:\n  2\n  3", logTail(file, 2))
	require.Contains(t, logTail(file+"x", 2), "no log")
}
