from localcluster.nodeagent.addresses import Addresses


def test_addresses_are_unique_and_start_after_the_reserved_ones() -> None:
    addresses = Addresses()
    taken = [addresses.take() for _ in range(300)]
    assert taken[0] == "10.244.0.2"
    assert len(set(taken)) == 300
    assert taken[254] == "10.244.1.0"


def test_an_address_is_not_handed_out_again_at_once() -> None:
    addresses = Addresses()
    first = addresses.take()
    addresses.give_back(first)
    assert addresses.take() != first


def test_the_wanted_address_is_given_where_it_is_free() -> None:
    addresses = Addresses()
    assert addresses.take("10.244.7.7") == "10.244.7.7"
    assert addresses.take("10.244.7.7") != "10.244.7.7"
    assert addresses.take("192.0.2.1").startswith("10.244.")
