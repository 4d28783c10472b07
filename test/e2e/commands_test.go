package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// commandInTable is a command in a table of a page.
var commandInTable = regexp.MustCompile("`(kubectl [^`]+)`")

// The commands that pages give in place of those of other projects work, and print something.
func TestCommandsInPlaceOfOthers(t *testing.T) {
	s := start(t)
	served := newPod("served")
	served.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	s.create(served)
	s.waitRunning("served")
	s.kubectl("-n", s.namespace, "create", "quota", "gpus", "--hard=requests.nvidia.com/gpu=4")
	outputs := map[string]string{}
	for page, head := range map[string]string{"migrate-from-device-plugin": "| question |", "migrate-pods": "| KAI's command |", "migrate": "| before |"} {
		_, table, found := strings.Cut(fileText(repository+"/docs/admin/"+page+".md"), head)
		require.True(t, found, "%s has no table %s", page, head)
		table, _, _ = strings.Cut(table, "\n\n")
		for row := range strings.Lines(table) {
			_, ours, _ := strings.Cut(row, " | ")
			for _, match := range commandInTable.FindAllStringSubmatch(ours, -1) {
				if strings.Contains(match[1], " convert ") { // it needs files
					continue
				}
				command := strings.NewReplacer(" job/NAME", " served", " POD", " served", " NODE", " "+nodeA, " --watch", "").Replace(match[1])
				if strings.Contains(command, " why ") || strings.Contains(command, " quota") {
					command += " -n " + s.namespace
				}
				out, err := s.try("sh", "-c", command)
				require.NoError(t, err, "%s: %s", command, out)
				assert.NotEmpty(t, strings.TrimSpace(out), command)
				outputs[command] = out
			}
		}
	}
	assert.GreaterOrEqual(t, len(outputs), 12)
	for part, want := range map[string]string{
		`"nvidia.com/gpu")`:      "(?m)^gpu-0000-1b-00-0$",
		"gpu-memory":             `(?m)^node-a +\d+`,
		".migMode":               "(?m)^gpu-0000-1b-00-0 (Enabled|Disabled)$",
		"extendedResourceClaim":  "(?m)" + s.namespace + " +served +served-",
		".spec.extendedRes":      `(?m)^gpu-extended-nvidia\.tranche\.dev +nvidia\.com/gpu$`,
		"nvidia.com/gpu.product": "(?m)^node-a ",
	} {
		found := false
		for command, out := range outputs {
			if strings.Contains(command, part) {
				found = true
				assert.Regexp(t, want, out, command)
			}
		}
		assert.True(t, found, part)
	}
}
