// Package calls makes the calls of controllers to the API server fail, one after another.
package calls

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Err is the answer to the call that fails.
var Err = errors.New("the API server does not answer")

// Calls are those to clients. The zero value makes none fail.
type Calls struct {
	// Failing are the calls that fail: "get *v1.Pod", "list *v1.PodList". Empty: none.
	Failing string
	// fails makes the call with the index at fail.
	fails bool
	at    int
	made  []string
}

func (c *Calls) note(verb string, o any) error {
	call := fmt.Sprintf("%s %T", verb, o)
	c.made = append(c.made, call)
	if call == c.Failing || c.fails && len(c.made)-1 == c.at {
		return Err
	}
	return nil
}

// Each calls do until all calls to the API server in it have succeeded: the first time the first one
// fails, then the second one, and so on. What do returns must say so each time.
func (c *Calls) Each(t *testing.T, do func() error) {
	t.Helper()
	c.fails = true
	defer func() { c.fails = false }()
	for c.at = 0; ; c.at++ {
		c.made = nil
		err := do()
		if len(c.made) <= c.at {
			require.NoError(t, err)
			return
		}
		assert.ErrorIs(t, err, Err, "%s fails, after %v", c.made[c.at], c.made[:c.at])
	}
}

// Client passes calls on to a client.
func (c *Calls) Client(to client.WithWatch) client.WithWatch {
	return interceptor.NewClient(to, interceptor.Funcs{
		Get: func(ctx context.Context, to client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.note("get", o); err != nil {
				return err
			}
			return to.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, to client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if err := c.note("list", l); err != nil {
				return err
			}
			return to.List(ctx, l, opts...)
		},
		Create: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.note("create", o); err != nil {
				return err
			}
			return to.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := c.note("update", o); err != nil {
				return err
			}
			return to.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, to client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := c.note("patch", o); err != nil {
				return err
			}
			return to.Patch(ctx, o, patch, opts...)
		},
		Delete: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := c.note("delete", o); err != nil {
				return err
			}
			return to.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, to client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := c.note("patch "+sub+" of", o); err != nil {
				return err
			}
			return to.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	})
}
