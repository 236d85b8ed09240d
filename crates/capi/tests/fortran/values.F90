! Which arrays of values the compiler takes: with VALUES as one of those that are no contiguous
! target it has to refuse this program.
program values
    use, intrinsic :: iso_fortran_env, only: real64
    use sparsebatch
    implicit none
    real(real64), target, allocatable :: jacobian(:, :)
    real(real64), allocatable :: plain(:, :)
    real(real64), pointer, contiguous :: part(:, :)
    type(sb_batch) :: batch
    allocate (jacobian(4, 6), plain(4, 6))
    part => jacobian(:, 1:2)
    call passes_on(jacobian)
contains
    subroutine passes_on(argument)
        real(real64), intent(in), target, contiguous :: argument(:, :)
        type(sb_solver) :: solver
        integer :: stat
        call solver%create(batch, VALUES, stat=stat)
        call solver%set_values(VALUES, stat=stat)
        if (size(argument) + size(plain) /= 48 .or. size(part) /= 8) error stop 1
    end subroutine
end program
