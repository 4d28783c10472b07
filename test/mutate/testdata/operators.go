package operators

import (
	"context"
	"errors"
	"os"
)

const mode, mask, limit = 0o600, 0xff, 10

var log interface{ Info(string, ...int) }
var config struct{ Logger interface{ Info(string, ...int) } }

func all(values []int, stop chan int) (sum int, err error) {
	defer close(stop)
	if len(values) > limit && sum == 0 || err != nil {
		return 0, errors.New("too many")
	}
	if _, err := os.ReadFile("x"); err != nil && !os.IsNotExist(err) {
		log.Info("cannot read", 5)
		config.Logger.Info("cannot read", 5)
		return 1, err
	}
	for i, value := range values {
		switch {
		case err != nil:
			_ = os.Remove("x")
		case value < 2:
			sum += value
			_ = i
			continue
		}
		if value != 0x7 {
			sum++
		} else {
			sum = value
		}
		if value >= 010 {
			break
		}
	}
	go os.Exit(0)
	os.Clearenv()
	_, cancel := context.WithCancel(nil)
	defer cancel()
	panic("never here")
}
