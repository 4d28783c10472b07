package lab

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// endPatience is how long a part of the cluster may take to end.
const endPatience = time.Minute

// running is a part of the cluster that runs in this process.
type running struct {
	name   string
	cancel context.CancelFunc
	ended  chan struct{}
	// err is what it returned. It is read after ended is closed.
	err  error
	once sync.Once
}

func run(name string, f func(context.Context) error) *running {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	r := &running{name: name, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = f(ctx)
	}()
	return r
}

// stop ends it, and returns an error if it ended with one or does not end.
func (r *running) stop() (err error) {
	r.once.Do(func() {
		r.cancel()
		select {
		case <-r.ended:
			if r.err != nil {
				err = fmt.Errorf("%s ended: %w", r.name, r.err)
			}
		case <-time.After(endPatience):
			err = fmt.Errorf("%s does not end", r.name)
		}
	})
	return err
}
