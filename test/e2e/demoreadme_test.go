package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// fenced is a block of commands in a README.
	fenced = regexp.MustCompile("(?ms)^```\n(.*?)^```$")
	// upgrade is a command that gives the release values that it has already (TestValuesOfDemos), watching
	// one that has no end.
	upgrade  = regexp.MustCompile(`(?m)^helm (.*\\\n)*.*\n`)
	watching = regexp.MustCompile(`(?m)^.* --watch\n`)
	// refused is a command that a README shows failing.
	refused = regexp.MustCompile(`(?m)^(.*/refused/.*)$`)
	// reading are commands after which the demo is as before; other commands are not.
	reading = regexp.MustCompile(`^(#.*|kubectl (-n \S+ )?(wait|logs|get|describe|rollout status|port-forward|tranche) ?.*|kubectl (-n \S+ )?apply -f (\S+).*|curl .*| +\S.*)?$`)
	// anyNode is a node that one has to name, and no variable, namespaced a namespace that may be there already.
	anyNode    = regexp.MustCompile(` NODE\b`)
	namespaced = regexp.MustCompile(`(?m)^kubectl create namespace .*$`)
	// installing is a command that installs another project in the cluster of `make demo`.
	installing = regexp.MustCompile(`(?m)^(test/project\.sh \S+) \.cluster`)
	// applied is a folder of demo/ that a command applies.
	applied = regexp.MustCompile(`(?m)^kubectl .*apply .*-f (demo/[a-z0-9-]+)`)
)

// unscripted are demos whose READMEs cannot be run from beginning to end without a person, and why.
var unscripted = map[string]string{
	"translate-kai": "the scheduler's name of pods cannot be applied twice",
}

// jobSet is a manifest of which TestJobSet runs the commands.
const jobSet = "demo/job/jobset/jobset.yaml"

// readme is what the README of a demo has one type, as a script. shows: it applies the demo's manifest and
// only looks afterwards.
func readme(t *testing.T, name string) (script string, shows bool) {
	t.Helper()
	script = strings.Join(slices.DeleteFunc(blocks(name), func(block string) bool { return strings.Contains(block, jobSet) }), "")
	require.Contains(t, script, "kubectl apply -f demo/"+name, "the README does not apply the demo")
	shows = true
	for line := range strings.Lines(script) {
		shows = shows && reading.MatchString(strings.TrimSuffix(line, "\n")) && !refused.MatchString(line)
	}
	for _, match := range applied.FindAllStringSubmatch(script, -1) {
		shows = shows && match[1] == "demo/"+name
	}
	script = refused.ReplaceAllString(script, "if $1; then echo 'it was not refused'; exit 1; fi")
	return anyNode.ReplaceAllString(script, " "+nodeA), shows
}

// blocks are the blocks of commands in the README of a demo, as far as they can be run.
func blocks(name string) (scripts []string) {
	for _, block := range fenced.FindAllStringSubmatch(fileText(filepath.Join(repository, "demo", name, "README.md")), -1) {
		scripts = append(scripts, watching.ReplaceAllString(upgrade.ReplaceAllString(block[1], ""), ""))
	}
	return scripts
}

// migrations are the READMEs of demo/migrate with the number of their blocks, which TestMigrations runs
// one by one.
var migrations = map[string]int{"eks": 7, "kaiwo": 1, "nos": 2}

// migration is a block of a README of demo/migrate, for a node.
func (s *suite) migration(name string, block int, nodeName string) string {
	s.t.Helper()
	all := blocks("migrate/" + name)
	require.Len(s.t, all, migrations[name], "TestMigrations does not run all blocks of the README")
	return namespaced.ReplaceAllString(anyNode.ReplaceAllString(all[block], " "+nodeName), "$0 --dry-run=client -o yaml | kubectl apply -f -")
}

// The commands of each README can be run, and a demo whose commands cannot is there still.
func TestCommandsOfReadmes(t *testing.T) {
	shown := 0
	for name := range demoChecks {
		script, shows := readme(t, name)
		out, err := exec.CommandContext(t.Context(), "bash", "-nc", script).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		require.NotContains(t, script, nodeA+"=", "bash takes it for a command")
		if shows && unscripted[name] == "" {
			shown++
		}
	}
	assert.Greater(t, 3*shown, len(demoChecks), "fewer than a third of the READMEs are run")
	for name := range unscripted {
		assert.Contains(t, demoChecks, name)
	}
	for name := range migrations {
		for i := range migrations[name] {
			script := (&suite{t: t}).migration(name, i, nodeA)
			out, err := exec.CommandContext(t.Context(), "bash", "-nc", script).CombinedOutput()
			require.NoError(t, err, "%s: %s", name, out)
		}
	}
}

// run runs a script in the repository's folder, where READMEs and demo/run.sh are meant to be run.
func (s *suite) run(script string) string {
	s.t.Helper()
	script = strings.ReplaceAll(script, "bin/cluster exec ", "cluster exec --dir "+s.cluster+" ")
	script = installing.ReplaceAllString(script, "$1 "+absolute(s.cluster))
	// What the script leaves in the background ends with it.
	command := s.command(s.ctx, "bash", "-xec", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"+script)
	command.Dir, command.WaitDelay = repository, time.Minute
	out, err := command.CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	return string(out)
}

// READMEs that only show what a manifest does run in TestDemos. The others change nodes or end what they
// began, and run here from beginning to end.
func TestDemoReadmes(t *testing.T) {
	readmes, err := filepath.Glob(filepath.Join(repository, "demo", "*", "README.md"))
	require.NoError(t, err)
	for _, file := range readmes {
		name := filepath.Base(filepath.Dir(file))
		script, shows := readme(t, name)
		if shows || unscripted[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := startAtNight(t)
			// The cluster of make demo has no node with other NVIDIA GPUs.
			s.cordon(nodeB)
			s.unlabelAtEnd(nodeA)
			s.unlabelAtEnd(nodeC)
			if name == "kueue" { // its kinds are gone at the end
				s.uninstallAtEnd(name)
				t.Cleanup(func() { s.kubectl("delete", "--ignore-not-found", "namespace", kueueNamespace) })
			} else {
				t.Cleanup(func() {
					for _, match := range applied.FindAllStringSubmatch(script, -1) {
						s.kubectl("delete", "--ignore-not-found", "-f", filepath.Join(repository, match[1]))
					}
				})
			}
			s.run(script)
		})
	}
}

// cordon keeps new pods off a node until the test ends.
func (s *suite) cordon(node string) {
	s.t.Helper()
	s.kubectl("cordon", node)
	s.t.Cleanup(func() { s.kubectl("uncordon", node) })
}

// The picture in README.md is what `kubectl tranche` prints of these demos.
func TestPictureOfTheReadme(t *testing.T) {
	s := start(t)
	for _, name := range []string{"whole-gpu", "mig", "two-partitions", "amd-partition"} {
		folder := filepath.Join(repository, "demo", name)
		t.Cleanup(func() { s.kubectl("delete", "--ignore-not-found", "-f", folder) })
		s.kubectl("apply", "-f", folder)
		s.demoPods("demo-" + name)
	}
	_, shown, _ := strings.Cut(fileText(filepath.Join(repository, "README.md")), "```\n")
	shown, _, _ = strings.Cut(shown, "```")
	// The names, the GPUs that the scheduler chooses, and whether MIG is on already.
	varies := regexp.MustCompile(`node-[a-c]|gpu-0000[-0-9a-f]+|-[a-z0-9]{5}\)|,? *MIG on`)
	lines := strings.Split(varies.ReplaceAllString(shown, ""), "\n")
	require.Greater(t, len(lines), 10)
	s.eventually("kubectl tranche prints what README.md shows", func() (bool, string) {
		printed := s.kubectl("tranche", "--summary=false")
		now := strings.Split(varies.ReplaceAllString(printed, ""), "\n")
		missing := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(now, line) })
		return len(missing) == 0, strings.Join(append(missing, printed), "\n")
	})
}

// The script of `make demo` applies demos and shows what they see.
func TestDemoScript(t *testing.T) {
	s := startAtNight(t)
	s.cordon(nodeB)
	text, err := os.ReadFile(filepath.Join(repository, "demo", "run.sh"))
	require.NoError(t, err)
	demos := regexp.MustCompile(`(?m)^demos=\((.*)\)$`).FindStringSubmatch(string(text))[1] + " either-vendor"
	t.Cleanup(func() {
		for _, name := range strings.Fields(demos) {
			s.kubectl("delete", "--ignore-not-found", "-f", filepath.Join(repository, "demo", name))
		}
	})
	out := s.run("CLUSTER_DIR=" + s.cluster + " demo/run.sh")
	for _, part := range []string{"container main of pod whole-gpu sees", "TRANCHE_DEVICE", "── kubectl tranche", "The cluster is up"} {
		assert.Contains(t, out, part)
	}
}
