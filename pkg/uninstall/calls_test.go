package uninstall

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/kubefake"
)

var errRefused = errors.New("refused")

// calls counts the calls to an API server, and refuses some.
type calls struct {
	mu   sync.Mutex
	made map[string]int
	// refused is the kind of calls that fail, from the one with the number on.
	refused string
	from    int
}

func (c *calls) react(a k8stesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := a.GetVerb() + " " + a.GetResource().Resource
	c.made[call]++
	if call == c.refused && c.made[call] >= c.from {
		return true, nil, errRefused
	}
	return false, nil, nil
}

// do runs one of the programs where there is something of everything. It returns the calls.
func (c *calls) do(t *testing.T, program func(context.Context, Config) error) (map[string]int, error) {
	t.Helper()
	c.made = map[string]int{}
	client := kubefake.New(append(leftovers(), installed("gpus", "tranche-kubelet-plugin"), slice("node-a"), slice("node-b"), plugin("node-a", corev1.ConditionTrue), plugin("node-b", corev1.ConditionTrue),
		&resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "tranche-fraction-500", Labels: map[string]string{names.LabelCreatedFrom: names.CreatedFromAmount}}})...)
	ours := clientfake.New(gpuNode("node-a", v1beta1.Idle),
		&v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "cpx", Labels: map[string]string{names.LabelCreatedFrom: names.CreatedFromChart}}})
	config := configOf(t, client, ours)
	config.Look = time.Millisecond
	onDelete(client, withdraw)
	clientfake.React(&client.Fake, "*", "*", c.react)
	clientfake.React(&ours.Fake, "*", "*", c.react)
	err := program(t.Context(), config)
	return c.made, err
}

// What the API server refuses is not taken for an answer: a list that fails is not an empty one, and
// what could not be deleted is not gone.
func TestEveryCallThatIsRefused(t *testing.T) {
	for name, program := range map[string]func(context.Context, Config) error{
		"Run": Run,
		"Check": func(ctx context.Context, c Config) error {
			_, err := Check(ctx, c)
			return err
		},
		"Find": func(ctx context.Context, c Config) error {
			_, err := c.Find(ctx, "")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := (&calls{}).do(t, program)
			require.NoError(t, err)
			for call, times := range made {
				for n := range times {
					some := &calls{refused: call, from: n + 1}
					if again, err := some.do(t, program); again[call] > n { // how often it looks depends on the clock
						require.ErrorIs(t, err, errRefused, "%s, from number %d", call, n+1)
					}
				}
			}
		})
	}
}
